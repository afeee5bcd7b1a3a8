/** The configuration: a form made from its schema, beside the text of the file. */
import { type Signal, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";

import { ApiError, describeError, request } from "../api/client";
import type { Json } from "../api/types";
import { navigate, type ViewProps } from "../router";
import { hasScope } from "../state/auth";
import { announce, notify } from "../state/notices";
import { Button, EmptyState, ErrorState, Loading, PageHeader } from "../ui/controls";
import { alternativesOf, parseJson, resolveSchema, type Schema, typeOf } from "./json_schema";
import { Prose, Tabs, TabPanel, useRequest } from "./parts";

interface ConfigDocument {
  path: string;
  hash: string;
  text: string;
  values: { [key: string]: Json };
  problems: { path: string; message: string }[];
}

/** Values that the user changed in the form, by path; `undefined` removes one from the file. */
type Changes = ReadonlyMap<string, Json | undefined>;

interface Conflict {
  /** What the file holds now. */
  current: ConfigDocument;
}

type Tab = "form" | "text";

export default function Settings({ query }: ViewProps) {
  const config = useRequest<ConfigDocument>("/api/config");
  const schema = useRequest<Schema>("/api/config/schema");
  if (!hasScope("admin")) {
    return (
      <>
        <PageHeader title="Settings" />
        <EmptyState title="You cannot view the settings">
          <p>Sign in with a token that has the scope admin.</p>
        </EmptyState>
      </>
    );
  }
  const error = config.error ?? schema.error;
  const reload = async () => {
    await Promise.all([config.reload(), schema.data === undefined ? schema.reload() : undefined]);
  };
  if (config.data === undefined || schema.data === undefined) {
    return (
      <>
        <PageHeader title="Settings" />
        {error instanceof ApiError && error.status === 404 ? (
          <EmptyState title="There is no config file">
            <p>The gateway runs with the defaults. Start it with a config file to change settings here.</p>
          </EmptyState>
        ) : error === undefined ? (
          <Loading />
        ) : (
          <ErrorState error={error} onRetry={() => void reload()} />
        )}
      </>
    );
  }
  return <Editor key={config.data.hash} config={config.data} schema={schema.data} tab={query.get("tab") === "text" ? "text" : "form"} onReload={config.reload} />;
}

interface EditorProps {
  config: ConfigDocument;
  schema: Schema;
  tab: Tab;
  onReload: () => Promise<void>;
}

function Editor({ config, schema, tab, onReload }: EditorProps) {
  const changes = useSignal<Changes>(new Map());
  const text = useSignal(config.text);
  const base = useSignal(config.hash);
  const conflict = useSignal<Conflict | undefined>(undefined);
  const problem = useSignal<{ path: string; message: string } | undefined>(undefined);
  const isBusy = useSignal(false);
  const isTextChanged = text.value !== config.text;
  const isChanged = tab === "text" ? isTextChanged : changes.value.size > 0;
  useWarningBeforeLeaving(isTextChanged || changes.value.size > 0);

  const save = async () => {
    isBusy.value = true;
    problem.value = undefined;
    try {
      const content = tab === "text" ? { text: text.value } : { changes: [...changes.value].map(([path, value]) => ({ path, value: value ?? null })) };
      await request("/api/config", { method: "PUT", body: { baseHash: base.value, ...content } });
      conflict.value = undefined;
      notify("The settings are saved.");
      await onReload();
    } catch (error) {
      await explain(error);
    } finally {
      isBusy.value = false;
    }
  };
  const explain = async (error: unknown) => {
    if (error instanceof ApiError && error.status === 409) {
      const current = await request<ConfigDocument>("/api/config");
      conflict.value = { current };
      announce("The file was changed by somebody else.");
    } else {
      problem.value = { path: error instanceof ApiError ? error.path : "", message: describeError(error) };
    }
  };
  const discard = () => {
    changes.value = new Map();
    text.value = config.text;
    problem.value = undefined;
    conflict.value = undefined;
    void onReload();
  };
  return (
    <div class="settings-view">
      <PageHeader title="Settings">
        {isChanged && (
          <Button variant="quiet" onClick={discard}>
            Discard
          </Button>
        )}
        <Button variant="primary" disabled={!isChanged || isBusy.value} onClick={() => void save()}>
          {isBusy.value ? "Saving…" : "Save"}
        </Button>
      </PageHeader>
      <div class="settings-bar">
        <Tabs
          label="Settings"
          tabs={[
            { id: "form", label: "Form", count: changes.value.size },
            { id: "text", label: "File" },
          ]}
          current={tab}
          onChange={(id) => navigate(`/settings?tab=${id}`, { replace: true })}
        />
        <code class="hint">{config.path || "no file yet"}</code>
      </div>
      <Problems config={config} problem={problem.value} />
      {conflict.value !== undefined && (
        <ConflictPanel
          conflict={conflict.value}
          mine={tab === "text" ? text.value : describeChanges(changes.value)}
          onKeepMine={() => {
            base.value = conflict.value?.current.hash ?? base.value;
            void save();
          }}
          onTakeTheirs={discard}
        />
      )}
      <TabPanel id={tab}>
        {tab === "form" ? (
          <SchemaForm schema={schema} values={config.values} changes={changes} problemPath={problem.value?.path ?? ""} />
        ) : (
          <textarea class="code-input config-text" aria-label="Configuration file" spellcheck={false} value={text.value} onInput={(event) => (text.value = event.currentTarget.value)} />
        )}
      </TabPanel>
    </div>
  );
}

function Problems({ config, problem }: { config: ConfigDocument; problem: { path: string; message: string } | undefined }) {
  const found = config.problems.map((each) => `${each.path}: ${each.message}`);
  if (problem !== undefined) found.unshift(problem.path === "" || problem.message.includes(problem.path) ? problem.message : `${problem.path}: ${problem.message}`);
  if (found.length === 0) return null;
  return (
    <div class="problem-list" role="alert">
      {found.map((each) => (
        <p key={each} class="problem">
          {each}
        </p>
      ))}
    </div>
  );
}

interface ConflictProps {
  conflict: Conflict;
  mine: string;
  onKeepMine: () => void;
  onTakeTheirs: () => void;
}

function ConflictPanel({ conflict, mine, onKeepMine, onTakeTheirs }: ConflictProps) {
  return (
    <section class="conflict" role="alert" aria-label="Conflict">
      <h2>The file was changed since you opened it</h2>
      <p>Nothing was written. Compare, then decide.</p>
      <div class="conflict-sides">
        <div>
          <h3>In the file now</h3>
          <pre tabIndex={0} aria-label="In the file now">
            {conflict.current.text}
          </pre>
        </div>
        <div>
          <h3>Your version</h3>
          <pre tabIndex={0} aria-label="Your version">
            {mine}
          </pre>
        </div>
      </div>
      <div class="form-actions">
        <Button onClick={onTakeTheirs}>Discard my changes</Button>
        <Button variant="primary" onClick={onKeepMine}>
          Save mine over it
        </Button>
      </div>
    </section>
  );
}

interface FormProps {
  schema: Schema;
  values: { [key: string]: Json };
  changes: Signal<Changes>;
  problemPath: string;
}

function SchemaForm({ schema, values, changes, problemPath }: FormProps) {
  const root = schema;
  const sections = Object.entries(resolveSchema(schema, root).properties ?? {}).filter(([name]) => name !== "$schema");
  const filter = useSignal("");
  const wanted = filter.value.trim().toLowerCase();
  return (
    <div class="schema-form">
      <nav class="form-sections" aria-label="Sections">
        <input type="search" placeholder="Find a setting" aria-label="Find a setting" value={filter.value} onInput={(event) => (filter.value = event.currentTarget.value)} />
        <ul>
          {sections.map(([name]) => (
            <li key={name}>
              <a
                href={`#section-${name}`}
                onClick={(event) => {
                  event.preventDefault();
                  document.getElementById(`section-${name}`)?.scrollIntoView({ block: "start" });
                }}
              >
                {name}
              </a>
            </li>
          ))}
        </ul>
      </nav>
      <div class="form-fields">
        {sections.map(([name, section]) => (
          <Section key={name} name={name} schema={section} root={root} value={values[name]} changes={changes} wanted={wanted} problemPath={problemPath} />
        ))}
      </div>
    </div>
  );
}

interface SectionProps {
  name: string;
  schema: Schema;
  root: Schema;
  value: Json | undefined;
  changes: Signal<Changes>;
  wanted: string;
  problemPath: string;
}

function Section({ name, schema, root, value, changes, wanted, problemPath }: SectionProps) {
  const fields = listFields(name, schema, root, value, 0).filter((field) => wanted === "" || `${field.path} ${field.schema.description ?? ""}`.toLowerCase().includes(wanted));
  if (fields.length === 0) return null;
  const resolved = resolveSchema(schema, root);
  return (
    <section id={`section-${name}`} class="form-section" aria-label={name}>
      <h2>{name}</h2>
      {resolved.description !== undefined && <p class="hint">{resolved.description}</p>}
      {fields.map((field) => (
        <Field key={field.path} field={field} changes={changes} isWrong={problemPath !== "" && problemPath.endsWith(field.path)} />
      ))}
    </section>
  );
}

export interface FormField {
  path: string;
  schema: Schema;
  type: string;
  value: Json | undefined;
}

const MAX_FORM_DEPTH = 5;

/** Return the fields of a part of the configuration: objects with known keys are opened, others are edited as JSON. */
function listFields(path: string, schema: Schema, root: Schema, value: Json | undefined, depth: number): FormField[] {
  const resolved = resolveSchema(schema, root);
  const alternatives = alternativesOf(resolved, root);
  const only = pickAlternative(alternatives, value) ?? resolved;
  const description = resolved.description ?? only.description;
  const merged: Schema = description === undefined ? only : { ...only, description };
  const properties = merged.properties;
  if (properties !== undefined && Object.keys(properties).length > 0 && depth < MAX_FORM_DEPTH) {
    const object = typeof value === "object" && value !== null && !Array.isArray(value) ? value : {};
    return Object.entries(properties).flatMap(([name, child]) => listFields(`${path}.${name}`, child, root, object[name], depth + 1));
  }
  return [{ path, schema: merged, type: alternatives.length > 1 ? pickType(alternatives, value) : typeOf(merged), value }];
}

/** Return the schema to show: the only one, or the one with known keys, unless the value is no object. */
function pickAlternative(alternatives: Schema[], value: Json | undefined): Schema | undefined {
  if (alternatives.length === 1) return alternatives[0];
  const isOpen = value === undefined || (typeof value === "object" && value !== null && !Array.isArray(value));
  return isOpen ? alternatives.find((each) => each.properties !== undefined) : undefined;
}

/** A value that may be a text or something else is edited as text while it is one. */
function pickType(alternatives: Schema[], value: Json | undefined): string {
  const hasText = alternatives.some((each) => typeOf(each) === "string");
  return hasText && (value === undefined || typeof value === "string") ? "string" : "any";
}

function Field({ field, changes, isWrong }: { field: FormField; changes: Signal<Changes>; isWrong: boolean }) {
  const { path, schema } = field;
  const isChanged = changes.value.has(path);
  const value = isChanged ? changes.value.get(path) : field.value;
  const change = (next: Json | undefined) => {
    const all = new Map(changes.value);
    if (JSON.stringify(next) === JSON.stringify(field.value)) all.delete(path);
    else all.set(path, next);
    changes.value = all;
  };
  const id = `field-${path.replaceAll(".", "-")}`;
  return (
    <div class={`form-field${isChanged ? " changed" : ""}${isWrong ? " wrong" : ""}`}>
      <div class="form-label">
        <label for={id}>
          <code>{path.slice(path.indexOf(".") + 1)}</code>
        </label>
        {isChanged && (
          <Button variant="quiet" class="undo" aria-label={`Undo the change of ${path}`} onClick={() => change(field.value)}>
            Undo
          </Button>
        )}
      </div>
      <FieldInput id={id} type={field.type} schema={schema} value={value} onChange={change} />
      {schema.description !== undefined && (
        <p class="hint" id={`${id}-hint`}>
          <Prose text={schema.description} />
        </p>
      )}
    </div>
  );
}

interface InputProps {
  id: string;
  type: string;
  schema: Schema;
  value: Json | undefined;
  onChange: (value: Json | undefined) => void;
}

function FieldInput({ id, type, schema, value, onChange }: InputProps) {
  const shownDefault = schema.default === undefined || schema.default === null || schema.default === "" ? "not set" : JSON.stringify(schema.default);
  const hint = schema.description === undefined ? undefined : `${id}-hint`;
  if (type === "boolean" || type === "enum") {
    const options: Json[] = type === "boolean" ? [true, false] : (schema.enum ?? [schema.const ?? null]);
    return (
      <select
        id={id}
        aria-describedby={hint}
        value={value === undefined ? "" : JSON.stringify(value)}
        onChange={(event) => onChange(event.currentTarget.value === "" ? undefined : (JSON.parse(event.currentTarget.value) as Json))}
      >
        <option value="">default ({shownDefault})</option>
        {options.map((option) => (
          <option key={JSON.stringify(option)} value={JSON.stringify(option)}>
            {String(option)}
          </option>
        ))}
      </select>
    );
  }
  if (type === "integer" || type === "number") {
    return (
      <input
        id={id}
        type="number"
        aria-describedby={hint}
        step={type === "integer" ? 1 : "any"}
        min={schema.minimum}
        max={schema.maximum}
        placeholder={shownDefault}
        value={typeof value === "number" ? value : ""}
        onChange={(event) => onChange(event.currentTarget.value === "" ? undefined : Number(event.currentTarget.value))}
      />
    );
  }
  if (type === "string") {
    return (
      <input
        id={id}
        type="text"
        aria-describedby={hint}
        spellcheck={false}
        placeholder={shownDefault}
        value={typeof value === "string" ? value : value === undefined || value === null ? "" : JSON.stringify(value)}
        onChange={(event) => onChange(event.currentTarget.value === "" ? undefined : event.currentTarget.value)}
      />
    );
  }
  return <JsonInput id={id} value={value} placeholder={shownDefault} hint={hint} onChange={onChange} />;
}

/** Lists, and objects whose keys are free. */
function JsonInput({ id, value, placeholder, hint, onChange }: { id: string; value: Json | undefined; placeholder: string; hint: string | undefined; onChange: (value: Json | undefined) => void }) {
  const shown = value === undefined ? "" : JSON.stringify(value, null, 2);
  const draft = useSignal(shown);
  const problem = useSignal("");
  useEffect(() => {
    draft.value = shown;
  }, [shown]);
  const commit = () => {
    const text = draft.value.trim();
    const parsed = text === "" ? { value: undefined, problem: "" } : parseJson(text);
    problem.value = parsed.problem;
    if (parsed.problem === "") onChange(parsed.value);
  };
  return (
    <>
      <textarea
        id={id}
        class="code-input"
        aria-describedby={hint}
        rows={Math.min(Math.max(shown.split("\n").length, 1), 10)}
        spellcheck={false}
        placeholder={placeholder}
        value={draft.value}
        onInput={(event) => (draft.value = event.currentTarget.value)}
        onBlur={commit}
      />
      <p class="problem" role="alert">
        {problem.value}
      </p>
    </>
  );
}

function useWarningBeforeLeaving(isChanged: boolean): void {
  useEffect(() => {
    if (!isChanged) return;
    const warn = (event: BeforeUnloadEvent) => event.preventDefault();
    addEventListener("beforeunload", warn);
    return () => removeEventListener("beforeunload", warn);
  }, [isChanged]);
}

function describeChanges(changes: Changes): string {
  return [...changes].map(([path, value]) => `${path}: ${value === undefined ? "(removed)" : JSON.stringify(value, null, 2)}`).join("\n");
}
