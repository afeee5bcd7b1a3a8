/** Small parts that all views use. */
import { useSignal } from "@preact/signals";
import type { ButtonHTMLAttributes, ComponentChildren } from "preact";
import { useEffect, useErrorBoundary, useRef } from "preact/hooks";

import { describeError } from "../api/client";
import { announce, notify } from "../state/notices";
import { Icon, type IconName } from "./icons";

const COPIED_MS = 1500;

interface ButtonProps extends Omit<ButtonHTMLAttributes, "icon" | "class"> {
  variant?: "primary" | "plain" | "danger" | "quiet";
  icon?: IconName;
  class?: string;
  children?: ComponentChildren;
}

export function Button({ variant = "plain", icon, children, class: className, type = "button", ...rest }: ButtonProps) {
  return (
    <button type={type} class={`button ${variant} ${className ?? ""}`} {...rest}>
      {icon !== undefined && <Icon name={icon} />}
      {children}
    </button>
  );
}

/** A button that is only an icon; `label` is its name. */
export function IconButton({ icon, label, ...rest }: { icon: IconName; label: string } & Omit<ButtonProps, "icon" | "label">) {
  return (
    <Button variant="quiet" class="icon-button" icon={icon} aria-label={label} title={label} {...rest} />
  );
}

export function CopyButton({ text, label = "Copy" }: { text: string | (() => string); label?: string }) {
  const isCopied = useSignal(false);
  const copy = async () => {
    try {
      // Undefined over http, unless the gateway is on this machine.
      await navigator.clipboard.writeText(typeof text === "string" ? text : text());
    } catch {
      notify("The browser does not allow copying here: it needs https, or a gateway on this machine.", { isError: true });
      return;
    }
    isCopied.value = true;
    announce("Copied");
    setTimeout(() => (isCopied.value = false), COPIED_MS);
  };
  return <IconButton icon={isCopied.value ? "check" : "copy"} label={label} onClick={() => void copy()} />;
}

export function Spinner({ label = "Loading" }: { label?: string }) {
  return <span class="spinner" role="img" aria-label={label} />;
}

export function Loading({ label = "Loading…" }: { label?: string }) {
  return (
    <div class="state" role="status">
      <Spinner />
      <p>{label}</p>
    </div>
  );
}

export function EmptyState({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="state">
      <h2>{title}</h2>
      {children}
    </div>
  );
}

export function ErrorState({ error, onRetry }: { error: unknown; onRetry?: () => void }) {
  return (
    <div class="state error" role="alert">
      <h2>This could not be loaded</h2>
      <p>{describeError(error)}</p>
      {onRetry !== undefined && <Button onClick={onRetry}>Try again</Button>}
    </div>
  );
}

/** What cannot be drawn says so, and leaves the rest of the page alone. In another place it tries again. */
export function Boundary({ place, children }: { place?: string; children: ComponentChildren }) {
  const [error, reset] = useErrorBoundary((problem: unknown) => console.error(problem));
  useEffect(() => reset(), [place]);
  if (error === undefined) return <>{children}</>;
  return (
    <p class="problem" role="alert">
      This part cannot be shown: {describeError(error)} <Button onClick={reset}>Try again</Button>
    </p>
  );
}

/** A modal dialog. Escape and the backdrop close it; the browser keeps the focus in it. */
export function Dialog(props: { title: string; onClose: () => void; children: ComponentChildren; class?: string }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const before = document.activeElement;
    dialog.current?.showModal();
    return () => {
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={dialog}
      class={`dialog ${props.class ?? ""}`}
      aria-label={props.title}
      onClose={props.onClose}
      onClick={(event) => {
        if (event.target === dialog.current) dialog.current?.close();
      }}
    >
      {props.children}
    </dialog>
  );
}

/** What a view is about, with its actions. */
export function PageHeader({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <header class="page-header">
      <h1>{title}</h1>
      <div class="page-actions">{children}</div>
    </header>
  );
}
