"""The contract of the Codex harness, statement by statement, with the requirements that hold it.

The two tables of the contract are complete, row by row. The other sections have their normative
sentences, in short. `test_requirements.py` checks that each names requirements that exist.
"""

from collections.abc import Mapping
from typing import Final

SUPPORTED: Final[Mapping[str, tuple[str, ...]]] = {
    "model loop": (
        "codex:model-loop",
        "codex:resume-after-restart",
        "codex:native-shell",
    ),
    "channel routing and delivery": ("codex:delivery", "codex:visible-replies-automatic"),
    "dynamic tools": (
        "codex:dynamic-tools-searchable",
        "codex:dynamic-tool-results",
        "codex:dynamic-tool-once",
        "codex:dynamic-tools-bad-schema",
    ),
    "prompt and context plugins": (
        "codex:prompt-and-context-plugins",
        "codex:prompt-base-is-native",
        "codex:prompt-no-personality",
    ),
    "context engine lifecycle": ("codex:context-engine", "codex:compaction-not-replaced"),
    "dynamic tool hooks": ("codex:dynamic-tool-hooks",),
    "lifecycle hooks": ("codex:lifecycle-hooks", "codex:compaction-observed"),
    "final-answer revision gate": ("codex:final-answer-revision",),
    "native shell, patch and MCP block or observe": (
        "codex:native-tools-block-or-observe",
        "codex:native-input-is-not-rewritten",
    ),
    "native permission policy": (
        "codex:approval-answers",
        "codex:guardian",
        "codex:permission-request-hook-is-opt-in",
    ),
    "trajectory": ("codex:trajectory",),
}
"""The rows of the table of what is supported."""

NOT_SUPPORTED: Final[Mapping[str, tuple[str, ...]]] = {
    "native tool argument mutation": ("codex:native-input-is-not-rewritten",),
    "editable native history": ("codex:history-is-native",),
    "tool_result_persist for native records": ("codex:native-records",),
    "rich native compaction metadata": ("codex:compaction-metadata",),
    "compaction intervention": ("codex:compaction-not-replaced",),
    "byte-for-byte request capture": ("codex:no-request-capture",),
}
"""The rows of the table of what is not."""

HOOK_LAYERS: Final[Mapping[str, tuple[str, ...]]] = {
    "plugin hooks": ("codex:dynamic-tool-hooks", "codex:lifecycle-hooks"),
    "middleware around dynamic tools": ("codex:dynamic-tool-hooks",),
    "native hooks": ("codex:native-hooks-in-thread-config",),
}
"""The rows of the table of hook layers."""

SENTENCES: Final[Mapping[str, tuple[str, ...]]] = {
    # Overview.
    "Nacre owns routing, sessions, delivery, its tools, approvals, media and the mirror": (
        "codex:delivery",
        "codex:dynamic-tool-hooks",
        "codex:approval-answers",
        "codex:image-saved-path",
        "codex:mirror",
    ),
    "Codex owns thread, model loop, tool continuation and compaction": (
        "codex:model-loop",
        "codex:native-compaction",
        "codex:no-own-surfaces",
    ),
    "the prompt follows the runtime": ("codex:prompt-runtime-decides",),
    "base instructions and project documents stay native": ("codex:prompt-base-is-native",),
    "threads start and resume without a personality": ("codex:prompt-no-personality",),
    "light runs suppress project documents": ("codex:prompt-light-runs",),
    "developer instructions have the profile files": ("codex:prompt-profile-files",),
    "skills, MEMORY.md and BOOTSTRAP.md are turn input": ("codex:prompt-reference-files",),
    # Thread bindings and model changes.
    "model, policy, sandbox and tier are sent with each turn": (
        "codex:model-change-keeps-the-thread",
    ),
    # Visible replies and heartbeats.
    "the final answer is the reply by default": ("codex:visible-replies-automatic",),
    "message_tool keeps the final answer private": ("codex:visible-replies-message-tool",),
    "heartbeats have heartbeat_respond in the searchable catalogue": (
        "codex:heartbeat-respond-searchable",
        "codex:heartbeat-quiet-or-notify",
    ),
    "guidance for heartbeats is a collaboration-mode instruction of their turn": (
        "codex:heartbeat-collaboration-mode",
    ),
    "ordinary turns restore the default mode": ("codex:heartbeat-collaboration-mode",),
    "HEARTBEAT.md is named and not inlined": ("codex:heartbeat-collaboration-mode",),
    # Hook boundaries.
    "no hooks.json; four events in the config of the thread": (
        "codex:native-hooks-in-thread-config",
    ),
    "PermissionRequest is left out while Codex asks, unless the settings name it": (
        "codex:permission-request-hook-is-opt-in",
    ),
    "other native hooks are no plugin hooks": ("codex:other-native-hooks",),
    "plugin hooks of dynamic tools fire in the adapter": (
        "codex:dynamic-tool-hooks",
        "codex:native-hooks-not-twice",
    ),
    "the native record is canonical": ("codex:native-records", "codex:history-is-native"),
    "items give observations of calls without PostToolUse": ("codex:native-observations",),
    "observations neither block, delay nor change a call": ("codex:observations-cannot-block",),
    "compaction and model events are observations of the adapter": ("codex:adapter-observations",),
    "hook notifications become events and call no plugin hook": ("codex:native-hook-events",),
    # Native permissions and MCP elicitations.
    "PermissionRequest is answered only where policy decides; no decision is no permission": (
        "codex:permission-request-decides-by-policy",
    ),
    "allow-always holds for the exact call, for a limited time": ("codex:allow-always-exact",),
    "MCP tool approvals are approvals; other elicitations fail closed": ("codex:mcp-elicitations",),
    "questions go to the chat, and the next message answers without steering": (
        "codex:user-input",
    ),
    # Queue steering.
    "messages of a quiet window are one request in their order": ("codex:queue-steering",),
    "what a review or a compaction refuses runs afterwards": (
        "codex:queue-steering",
        "codex:busy-thread-waits",
    ),
    "/queue chooses followup or collect": ("codex:queue-command",),
    # Feedback upload.
    "approved diagnostics upload feedback with logs for the threads concerned": (
        "codex:feedback-upload",
    ),
    "if feedback is disabled, the reply has the error": ("codex:feedback-upload",),
    "the reply lists channels, sessions, threads and resume commands": (
        "codex:diagnostics-approval",
    ),
    "a denial shows no ids and sends nothing": ("codex:diagnostics-approval",),
    "the upload does not replace the local bundle": ("codex:diagnostics-bundle",),
    "/codex diagnostics uploads the attached thread alone": ("codex:codex-diagnostics",),
    # Compaction and mirror.
    "no preflight compaction": ("codex:no-preflight-compaction",),
    "context engines do not replace native compaction": ("codex:compaction-not-replaced",),
    "no other summariser if native compaction cannot start": ("codex:no-other-summariser",),
    "the mirror is for history, search, /new, /reset and switches": (
        "codex:mirror",
        "codex:mirror-search",
        "codex:new-and-reset",
        "codex:switch-of-harness",
    ),
    "an explicit compaction starts natively and returns": ("codex:manual-compaction",),
    "nobody waits for its end, restarts the process or records it as an own one": (
        "codex:native-compaction",
    ),
    "a bootstrap has names, ids, shapes and redacted results, and no values": (
        "codex:thread-bootstrap",
    ),
    "the mirror has prompt, final text, and light records of reasoning and plans": (
        "codex:mirror",
        "codex:mirror-plan",
    ),
    "no summary and no list of what a compaction keeps": ("codex:compaction-metadata",),
    "tool_result_persist does not rewrite native results": ("codex:native-records",),
    # Media and delivery.
    "media and messages use the normal delivery": ("codex:delivery", "codex:image-saved-path"),
    "an image with a saved path is delivered, also without text": ("codex:image-saved-path",),
}
"""The normative sentences of the other sections."""

KNOWN_BUGS: Final[Mapping[str, tuple[str, ...]]] = {
    # The process.
    "app-servers are left behind (128473, 154865)": (
        "codex:dies-with-its-parent",
        "codex:orphans-are-ended",
    ),
    # Threads.
    "a turn without tools, or another order of tools, loses the thread (76824)": (
        "codex:transient-threads",
        "codex:dynamic-tools-registered",
    ),
    "a fixed number of tokens loses the thread (85975, 88355)": ("codex:large-thread-stays",),
    "/new does not leave a thread that cannot be used (135778)": ("codex:reset-clears-the-thread",),
    "a thread whose turn has failed stays unusable (148837)": ("codex:failed-thread-goes-on",),
    "a thread that is gone is asked for again and again (119977, 120443)": ("codex:rotation",),
    # Tools of Nacre.
    "one tool with a bad schema or name fails every turn (124932)": (
        "codex:dynamic-tools-bad-schema",
    ),
    "hundreds of tools slow down each start of a thread (79808, 132442)": (
        "codex:large-catalogue",
    ),
    "tools of MCP servers are not found by the search (99464)": ("codex:dynamic-tools-searchable",),
    "heartbeats and ordinary turns take the thread from each other (148547)": (
        "codex:heartbeat-respond-searchable",
        "codex:heartbeat-respond-tool",
    ),
    # Instructions and delivery.
    "a resumed thread has stale instructions (135577)": ("codex:prompt-current-on-resume",),
    "an answer is private although the message tool is missing (74868, 76660, 78405)": (
        "codex:visible-replies-fallback",
    ),
    "ordinary turns have the instructions of heartbeats (76788)": (
        "codex:heartbeat-collaboration-mode",
    ),
    # Native hooks.
    "hooks and policy do not see native calls of the default mode (82372)": (
        "codex:policy-promotion",
        "codex:native-tools-block-or-observe",
    ),
    "hooks of a thread fail after its first turn or a restart (73723, 87331, 87395, 87536)": (
        "codex:native-hooks-are-stable",
    ),
    "hooks expire while the model thinks (89147)": ("codex:native-hooks-last",),
    "another name of a native tool bypasses the policy (90633, 90868, 111254)": (
        "codex:native-names-never-bypass-policy",
    ),
    "each hook costs seconds and hundreds of megabytes (91009, 92193, 109421, 124573)": (
        "codex:relay-is-small",
    ),
    "other output spoils the answer of a hook (90994)": ("codex:relay-is-small",),
    # Approvals.
    "allow-always does not hold (135812, 136019)": ("codex:allow-always-exact",),
    "a denial cancels the whole run (125671)": ("codex:approval-decline-is-not-cancel",),
    # Messages during a turn.
    "messages do not reach a turn that runs a tool (48003, 84778, 98126)": (
        "codex:queue-steering",
    ),
    "messages are lost or overtaken at the end of a turn (112858, 119794)": (
        "codex:steering-confirmed",
        "codex:queue-steering",
    ),
    # Compaction.
    "somebody else compacts or summarises the session (82470, 85958, 86772)": (
        "codex:no-preflight-compaction",
        "codex:no-other-summariser",
        "codex:compaction-not-replaced",
    ),
    "a compaction needs a second writer of the thread (127148, 144616)": (
        "codex:manual-compaction",
        "codex:codex-commands",
    ),
    # Records.
    "messages of the mirror are lost or doubled (76886, 77046, 126244)": ("codex:mirror-once",),
    "results of tools appear as messages (99042)": ("codex:results-are-not-chat",),
    "a native call has no end in the record (88312)": ("codex:background-commands",),
    "a command with an exit code counts as a failure (96297)": ("codex:native-shell",),
    # Media.
    "an image without a text, or of a private turn, is not delivered (110394, 110893, 88191)": (
        "codex:image-saved-path",
    ),
    # Time.
    "a turn without a sign of life is ended (81114, 84076, 85251, 86047, 88331, 115445)": (
        "codex:idle-turns-go-on",
    ),
    "a turn that takes too long ends those of other sessions (86476)": (
        "codex:timeout-ends-one-turn",
    ),
}
"""Bugs that users of OpenClaw have reported about its Codex harness, by their issues."""
