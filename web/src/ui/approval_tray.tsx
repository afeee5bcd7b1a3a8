/** Open approval requests of all sessions, from anywhere. */
import { signal } from "@preact/signals";

import { ApprovalCard } from "../chat/approval_card";
import { sessionTitle } from "../model/session_list";
import { href } from "../router";
import { openApprovals } from "../state/approvals";
import { sessionList } from "../state/sessions";
import { Dialog, IconButton } from "./controls";

const isOpen = signal(false);

export function ApprovalTrayButton() {
  const count = openApprovals.value.length;
  if (count === 0) return null;
  const label = `${count} ${count === 1 ? "approval" : "approvals"} waiting`;
  return (
    <span class="tray-button">
      <IconButton icon="bell" label={label} onClick={() => (isOpen.value = true)} />
      <span class="count" aria-hidden="true">
        {count}
      </span>
    </span>
  );
}

export function ApprovalTray() {
  if (!isOpen.value) return null;
  const close = () => (isOpen.value = false);
  return (
    <Dialog title="Approvals" onClose={close} class="tray">
      <header>
        <h2>Approvals</h2>
        <IconButton icon="close" label="Close" onClick={close} />
      </header>
      {openApprovals.value.length === 0 && <p class="hint">Nothing waits for an approval.</p>}
      {openApprovals.value.map((approval) => {
        const session = sessionList.value.byId.get(approval.sessionId);
        return (
          <div key={approval.approvalId}>
            <a class="hint" href={href(`/sessions/${approval.sessionId}`)} onClick={close}>
              {session === undefined ? "Show the session" : sessionTitle(session)}
            </a>
            <ApprovalCard {...approval} />
          </div>
        );
      })}
    </Dialog>
  );
}
