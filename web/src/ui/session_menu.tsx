/** What can be done with a session. */
import { useSignal } from "@preact/signals";

import { describeError } from "../api/client";
import type { SessionInfo } from "../api/types";
import { sessionTitle } from "../model/session_list";
import { location, navigate } from "../router";
import { hasScope } from "../state/auth";
import { attempt } from "../state/notices";
import { deleteSession, forkSession, renameSession } from "../state/sessions";
import { Button, Dialog } from "./controls";
import { Menu, type MenuItem } from "./menu";

export function SessionMenu({ session }: { session: SessionInfo }) {
  const dialog = useSignal<"" | "rename" | "delete">("");
  const fork = () =>
    void attempt(async () => {
      navigate(`/sessions/${await forkSession(session.id)}`);
    });
  const base = `/api/sessions/${session.id}`;
  const items: MenuItem[] = [
    { label: "Rename", icon: "edit", onSelect: () => (dialog.value = "rename") },
    { label: "Fork", icon: "fork", onSelect: fork },
    { label: "Export as Markdown", icon: "download", download: `${base}/export?format=markdown` },
    { label: "Export as JSON lines", icon: "download", download: `${base}/export?format=jsonl` },
    { label: "Delete", icon: "trash", isDanger: true, onSelect: () => (dialog.value = "delete") },
  ];
  const close = () => (dialog.value = "");
  return (
    <>
      <Menu label={`Actions for ${sessionTitle(session)}`} items={hasScope("run") ? items : items.filter(({ download }) => download !== undefined)} />
      {dialog.value === "rename" && <RenameDialog session={session} onClose={close} />}
      {dialog.value === "delete" && <DeleteDialog session={session} onClose={close} />}
    </>
  );
}

function RenameDialog({ session, onClose }: { session: SessionInfo; onClose: () => void }) {
  const problem = useSignal("");
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const title = String(new FormData(event.currentTarget as HTMLFormElement).get("title") ?? "").trim();
    if (title === "") {
      problem.value = "A session needs a title.";
      return;
    }
    try {
      await renameSession(session.id, title);
      onClose();
    } catch (error) {
      problem.value = describeError(error);
    }
  };
  return (
    <Dialog title="Rename the session" onClose={onClose}>
      <form onSubmit={(event) => void submit(event)}>
        <h2>Rename the session</h2>
        <input name="title" aria-label="Title" defaultValue={sessionTitle(session)} autofocus maxLength={200} />
        <p class="problem" role="alert">
          {problem.value}
        </p>
        <div class="dialog-actions">
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" variant="primary">
            Rename
          </Button>
        </div>
      </form>
    </Dialog>
  );
}

function DeleteDialog({ session, onClose }: { session: SessionInfo; onClose: () => void }) {
  const problem = useSignal("");
  const isLive = session.state !== undefined && session.state !== "idle";
  const remove = async () => {
    try {
      await deleteSession(session.id, { abort: isLive });
      onClose();
      if (location.value.path === `/sessions/${session.id}`) navigate("/");
    } catch (error) {
      problem.value = describeError(error);
    }
  };
  return (
    <Dialog title="Delete the session" onClose={onClose}>
      <h2>Delete “{sessionTitle(session)}”?</h2>
      <p>
        {session.turnCount === 1 ? "Its turn is" : `Its ${session.turnCount} turns are`} deleted, with all records. This cannot be undone.
        {isLive && " A run is going on: it is stopped first."}
      </p>
      <p class="problem" role="alert">
        {problem.value}
      </p>
      <div class="dialog-actions">
        <Button onClick={onClose}>Cancel</Button>
        <Button variant="danger" onClick={() => void remove()}>
          Delete
        </Button>
      </div>
    </Dialog>
  );
}
