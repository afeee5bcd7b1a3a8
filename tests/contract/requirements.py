"""The statements of the contract that the code must keep, each with an id that tests name.

A test says `@requirement("id")`; `test_requirements.py` fails for a statement without a test and
for an id without a statement. Statements are added with the part that has to keep them.
"""

from collections.abc import Callable
from typing import Final, TypeVar

Test = TypeVar("Test", bound=Callable[..., object])

REQUIREMENTS: Final = {
    # What has to be proven of code mode.
    "validation:off-changes-nothing": "where code mode is off, the model sees the tools themselves",
    "validation:settings-alone-are-off": "settings without `enabled: true` do not switch it on",
    "validation:only-exec-and-wait": (
        "where it is on and the run has tools, the model sees `exec` and `wait` alone"
    ),
    "validation:runs-without-tools": (
        "a run without tools, with tools disabled or with nothing allowed stays as it is"
    ),
    "validation:all-tools": "ALL_TOOLS holds every tool that the run may use, but MCP tools",
    "validation:denied-tools": "denied tools are not in ALL_TOOLS and no guessed id calls them",
    "validation:search-describe-call": "tools are found, described and called through `tools`",
    "validation:mcp-not-in-tools": "MCP tools are neither listed in nor callable through `tools`",
    "validation:mcp-declarations": (
        "API.list and API.read show the declarations of MCP tools, without a request to the host"
    ),
    "validation:mcp-headers": "`$api()` shows the declaration and the schema of an MCP tool inline",
    "validation:mcp-calls": (
        "a visible MCP tool is called through `MCP` with one object, and only there"
    ),
    "validation:tool-search-hidden": (
        "the controls of Tool Search are shown neither to the model nor to programs"
    ),
    "validation:nested-hooks-and-approvals": (
        "hooks and approvals hold for nested calls as for any other"
    ),
    "validation:shell-exec": (
        "the shell's `exec` is hidden from the model and called by its id where it is allowed"
    ),
    "validation:no-recursion": "a program cannot call code mode's own `exec` and `wait`",
    "validation:typescript-is-lazy": (
        "TypeScript is transformed and run, and is not loaded where only JavaScript runs"
    ),
    "validation:no-modules": "import, require and every other module loader fail",
    "validation:no-files-network-environment": "files, network and environment are out of reach",
    "validation:endless-loops-end": "endless loops time out and block nobody",
    "validation:memory-cap": "the memory cap ends the VM",
    "validation:output-cap": "the output cap holds for completed and for suspended programs",
    "validation:snapshot-cap": "the snapshot cap holds",
    "validation:wait-resumes": "a suspended program is resumed and returns its final value",
    "validation:unusable-run-ids-fail": (
        "a run that is unknown, expired, aborted, taken or another's cannot be resumed"
    ),
    "validation:abort-cleans-up": "an aborted program leaves nothing behind",
    "validation:nested-calls-are-shown": (
        "trajectory and telemetry show nested calls, and under which call they were made"
    ),
    "validation:control-calls-are-kept": (
        "stored and replayed transcripts hold the calls of `exec` and `wait`, as they were made"
    ),
    "validation:no-enforcement-without-tools": (
        "runs without tools, with tools disabled or with nothing allowed are sent as they are"
    ),
    # What has to be proven of namespaces.
    "namespaces:described-when-visible": "a namespace is described only where its tools are there",
    "namespaces:owner-decides": "equally named tools of another owner do not open a namespace",
    "namespaces:no-raw-functions": "a scope with a raw function is refused",
    "namespaces:no-forged-calls": "forged namespaces and forged paths are refused",
    "namespaces:declared-tools-only": "functions call no tools but the required ones",
    "namespaces:shapes": "nested objects, and objects in two places, reach a program as they are",
    "namespaces:calls-are-tool-calls": "a function calls a tool of the catalog and returns JSON",
    "namespaces:failures-are-caught": "a program can catch the failure of a namespace call",
    "namespaces:wait-resumes": "a suspended namespace call is resumed by `wait`",
    "namespaces:cleared-with-plugin": "a plugin that goes takes its namespaces along",
    # The security boundary.
    "security:outside-the-event-loop": "programs run outside the host's event loop and process",
    "security:own-engine": "the engine is the package's own file, checked against its known hash",
    "security:no-host-objects": "no host object, function or prototype is reachable from a program",
    "security:interrupts-and-wall-clock": (
        "the engine is interrupted, and what cannot be is ended by the supervisor's clock"
    ),
    "security:caps": "output, snapshots, log lines and pending calls are capped",
    "security:json-bridge": "values cross the bridge as JSON only, in both directions",
    "security:plain-errors": "errors of the host reach a program as plain errors",
    "security:snapshots-dropped": "snapshots are dropped at the end, on abort and on close",
    "security:foreign-snapshots-refused": "a snapshot from elsewhere is refused before it runs",
    "security:no-recursion": "programs reach neither `exec` and `wait` nor Tool Search controls",
    "security:helpers-not-shadowed": "no tool's name hides a helper or a member of `tools`",
    "security:fails-closed": "without a sandbox nothing runs, and the model is shown nothing more",
    "security:os-hardening": "a worker is locked down, and what could not be applied is reported",
    # Tool Search.
    "tool-search:settings": "true, false or an object; numbers have defaults and are clamped",
    "tool-search:code-surface": "in mode `code` the model sees `tool_search_code` alone",
    "tool-search:tools-surface": "in mode `tools` it sees the three structured tools alone",
    "tool-search:off-changes-nothing": "where it is off, the model sees the tools themselves",
    "tool-search:not-with-code-mode": "it is never active together with code mode",
    "tool-search:falls-back": "without a sandbox, `code` becomes `tools` before anything is shown",
    "tool-search:search-describe-call": "both modes find, describe and call the same tools",
    "tool-search:all-sources": "tools of OpenClaw, of MCP servers and of clients are found",
    "tool-search:one-call-path": "policy, hooks, approvals and the record hold for final calls",
    "tool-search:program-sees": "a program has `console` and `openclaw.tools`, and no way out",
    "tool-search:killed-on-timeout": "a program is ended in time, also after it has awaited",
    "tool-search:denied-tools": "what policy denies is not found, not described and not called",
    "tool-search:gone-tools": "a tool that is gone since it was found cannot be called",
    "tool-search:blocks-are-reported": "a block by policy, hook or approval is reported as one",
    "tool-search:smaller-payload": "with many tools, the payload is at least 90 % smaller",
    "tool-search:telemetry": (
        "bytes sent, catalog and sources, counts, and the tools called are counted"
    ),
    "tool-search:session-log": (
        "the record says what was shown up front, how much was searched and what was called"
    ),
    # The plan of code mode, against a gateway process.
    "e2e:code-mode:1": "a gateway starts with code mode off",
    "e2e:code-mode:2": "a turn is made with a small set of direct tools",
    "e2e:code-mode:3": "the tools that the provider sees are the tools themselves",
    "e2e:code-mode:4": "the gateway is started again with code mode on",
    "e2e:code-mode:5": "a turn is made with tools of OpenClaw, a plugin, an MCP server, a client",
    "e2e:code-mode:6": "the tools that the provider sees are exactly `exec` and `wait`",
    "e2e:code-mode:7": "a program finds the effective tools in ALL_TOOLS",
    "e2e:code-mode:8": (
        "tools of OpenClaw, plugin and client are searched, described and called in a program"
    ),
    "e2e:code-mode:9": "a program lists and reads the declarations of MCP tools",
    "e2e:code-mode:10": "MCP tools are called through `MCP`, and are not in ALL_TOOLS and `tools`",
    "e2e:code-mode:11": "denied tools are absent and cannot be called by a guessed id",
    "e2e:code-mode:12": "a nested call ends after `exec` has returned `waiting`",
    "e2e:code-mode:13": "`wait` gives its result to the restored program",
    "e2e:code-mode:14": "the final answer holds what was put out after the restore",
    "e2e:code-mode:15": "timeout, abort and expiry of a snapshot clean up",
    "e2e:code-mode:16": "an exported trajectory shows nested calls under their parent",
    # The proofs of Tool Search, against a gateway process.
    "e2e:tool-search:1": "without it, a tool of a plugin is called directly",
    "e2e:tool-search:2": "with it, the same tool is called",
    "e2e:tool-search:3": "without it, the provider sees the schemas of the plugin's tools",
    "e2e:tool-search:4": "with it, the provider sees the compact bridge alone",
    "e2e:tool-search:5": "with it, the request is smaller for a large catalog",
    "e2e:tool-search:6": "the session's log shows the number of calls, and what was bridged",
    # What users of an agent see, in every harness.
    "codex:heartbeat-collaboration-mode": (
        "a heartbeat turn has a collaboration-mode instruction that names HEARTBEAT.md, and an "
        "ordinary turn restores the Default mode"
    ),
    "codex:heartbeat-respond-searchable": (
        "`heartbeat_respond` is found in the searchable catalog of Codex"
    ),
    "codex:image-saved-path": (
        "an image that Codex saved is delivered as media, also if the turn has no text"
    ),
    "codex:heartbeat-quiet-or-notify": "a heartbeat records whether it stays quiet or notifies",
    "codex:heartbeat-respond-tool": (
        "`heartbeat_respond` takes one response per heartbeat and refuses in other turns"
    ),
    "codex:visible-replies-automatic": "by default, the final answer is the reply",
    "codex:visible-replies-message-tool": (
        "with `message_tool`, the final answer is private unless the agent sends a message"
    ),
    "codex:visible-replies-fallback": (
        "without the `message` tool in a turn, the final answer is the reply"
    ),
    # The Codex harness.
    "codex:harness-by-model-reference": (
        "the harness of a turn follows the model reference: the model's entry, its provider's, auto"
    ),
    "codex:native-hooks-in-thread-config": (
        "native hooks come from the config of a thread with trusted hashes, never from hooks.json"
    ),
    "codex:diagnostics-bundle": (
        "the local diagnostics bundle has no secrets, and the upload to Codex does not replace it"
    ),
    "codex:diagnostics-approval": (
        "diagnostics need an approval each time, which names no Codex id; the reply has channels, "
        "sessions, threads and resume commands; a denial sends and shows nothing"
    ),
    "codex:feedback-upload": (
        "approved diagnostics call feedback/upload for the Codex threads of the session, with "
        "logs, and the reply has the error of the app-server if it refuses"
    ),
    "codex:codex-diagnostics": (
        "/codex diagnostics sends the feedback of the attached thread alone"
    ),
    "codex:diagnostics-owner": "only the owner can use /diagnostics",
    "codex:native-tools-block-or-observe": (
        "PreToolUse can block native shell, patch and MCP calls, PostToolUse observes them"
    ),
    "codex:native-input-is-not-rewritten": (
        "the input of a native call is never rewritten; a hook that changes it blocks the call"
    ),
    "codex:final-answer-revision": (
        "Stop is relayed to before_agent_finalize, which can ask for one more pass of the model"
    ),
    "codex:native-hooks-not-twice": (
        "native hooks do not call the hooks of Nacre's own tools a second time"
    ),
    "codex:native-observations": (
        "item notifications give after_tool_call observations of calls without PostToolUse"
    ),
    "codex:native-hook-events": (
        "hook/started and hook/completed are codex_app_server.hook events and call no plugin hook"
    ),
    "codex:permission-request-decides-by-policy": (
        "PermissionRequest is decided only by policy; without a decision Codex asks"
    ),
    "codex:permission-request-hook-is-opt-in": (
        "PermissionRequest is left out unless approvalPolicy is never or the settings name it"
    ),
    "codex:native-hooks-are-stable": (
        "the native hooks of a thread work in all its turns, also after a restart"
    ),
    "codex:native-hooks-last": "native hooks are answered however long a turn takes",
    "codex:relay-is-small": (
        "the command of a native hook loads nothing of Nacre or of the user, and prints the answer "
        "alone"
    ),
    "codex:native-names-never-bypass-policy": (
        "every name of a native tool is subject to the policy of Nacre's tool, unknown names to "
        "that of themselves"
    ),
    "codex:native-hooks-fail-closed": (
        "a native call or permission whose hook gets no answer is denied; other hooks do nothing"
    ),
    "codex:approval-answers": (
        "each answer of a person to a native approval request has its result; grants contain only "
        "what was asked for"
    ),
    "codex:approval-decline-is-not-cancel": (
        "a denial, a timeout and a missing approver decline the call; only an abort of the run "
        "cancels"
    ),
    "codex:approval-of-active-turn": "requests of other threads and turns are declined",
    "codex:approval-policy-first": (
        "policy and hooks decide before a person is asked; a rewritten input declines"
    ),
    "codex:approval-auto": (
        "native calls are accepted unasked only with full access and without approvals"
    ),
    "codex:allow-always-exact": (
        "allow-always holds for the same provider, session, tool input and cwd, for a limited "
        "time; a changed command, argument, payload or cwd asks again"
    ),
    "codex:approval-text": "people read clean, short texts that name the risks",
    "codex:mcp-elicitations": (
        "elicitations of kind `mcp_tool_call` are approvals; all others fail closed"
    ),
    "codex:user-input": (
        "questions of Codex go to the originating chat, and the next message answers instead of "
        "being steered"
    ),
    "codex:queue-steering": (
        "messages that steer a turn of Codex are sent after the quiet window, in one request and "
        "in their order; if Codex refuses them, they run afterwards"
    ),
    "codex:steering-confirmed": (
        "a steered message that Codex has not taken at the end of the turn runs afterwards, once"
    ),
    "codex:steering-not-repeated": (
        "a message that Codex may have used before a crash stays in the session and does not run "
        "again"
    ),
    "codex:guardian": (
        "in the mode `guardian`, a reviewer of Codex decides before people are asked"
    ),
    "codex:policy-promotion": (
        "a default policy without approvals becomes `untrusted` where hooks or rules want to see "
        "native calls"
    ),
    "codex:dynamic-tools-searchable": (
        "tools of the core, plugins, MCP servers and clients are searchable in Codex, except those "
        "that Codex has itself; configuration makes them direct"
    ),
    "codex:dynamic-tools-bad-schema": "a tool with an unusable schema is left out, and only it",
    "codex:dynamic-tools-registered": (
        "a thread keeps a stable set of registered tools, of which a turn may have fewer"
    ),
    "codex:dynamic-tools-failures": (
        "a call of an unknown tool and one of a tool of other turns fail with different texts"
    ),
    "codex:dynamic-tool-hooks": (
        "policy, hooks, approvals and the record hold for calls of Nacre's tools by Codex"
    ),
    "codex:dynamic-tool-results": "Codex gets text and images; long text is cut with a notice",
    "codex:dynamic-tool-once": "the same call twice is executed once",
    "codex:started-agents": "agents that Codex starts have the tools and checks of the turn",
    "codex:restart": "a gateway that was killed goes on with the threads of its sessions",
    "codex:frozen-process": (
        "an app-server that answers nothing is ended, and the next turn resumes the thread"
    ),
    "codex:malformed-messages": (
        "garbage, long lines and malformed messages of the app-server do not cost the turn"
    ),
    "codex:sessions-at-once": (
        "sessions of an agent run at once in one process; an abort ends only its own turn"
    ),
    "codex:second-writer": (
        "a thread that another process has open does not stop a session, which says so"
    ),
    "codex:fresh-home": "two processes can start Codex in a fresh home at the same time",
    "codex:overload": "an app-server that is overloaded is asked again, and nothing is done twice",
    "codex:managed-hooks": (
        "a turn that needs native hooks is refused where an administrator of Codex forbids them"
    ),
    "codex:limits-of-codex": (
        "in Codex, only limits of model calls and tokens count that somebody has set; a last "
        "answer within them is kept"
    ),
    "codex:crash-names-effects": (
        "the error of a crash says so if the turn had begun to answer or to act"
    ),
    "codex:mirror-plan": "the plan that a model keeps in Codex is a light record of the mirror",
    "codex:busy-thread-waits": (
        "a message during a review or a compaction, which Codex does not steer, runs afterwards"
    ),
    "codex:large-thread-stays": "no fixed size costs a session its thread; Codex compacts it",
    "codex:failed-thread-goes-on": "a thread whose last turn has failed is used again",
    "codex:large-catalogue": "hundreds of tools neither slow down nor replace a thread",
    "codex:results-are-not-chat": "results of tools are neither replies nor messages of the mirror",
    "codex:idle-turns-go-on": "no time without a sign of the model ends a turn",
    "codex:timeout-ends-one-turn": "the time limit of a turn ends neither the process nor others",
    "codex:delivery": "messages come and go through every entry point, outside of the runtime",
    "codex:mirror-search": "the mirror of a thread is found by the search of sessions",
    "codex:compaction-of-one-command": (
        "a command that starts a compaction in a process of its own ends after the compaction"
    ),
    "codex:no-leaks": "turns leave no process, descriptor or relay behind",
    "codex:dynamic-tool-timeouts": "a call that takes too long fails, and the turn goes on",
    "codex:fails-closed": (
        "a turn for Codex fails with a clear error where the binary is missing, too old or broken"
    ),
    "codex:every-server-request-is-answered": (
        "every request of the app-server gets an answer; one that nobody handles a safe one"
    ),
    "codex:model-loop": ("Codex runs the turn, keeps the thread and continues after its own tools"),
    "codex:mirror": (
        "the session has a mirror: the prompt, the final text, light records of reasoning and plans"
    ),
    "codex:mirror-once": (
        "each message of a thread is in its session once, also after a crash or a repetition"
    ),
    "codex:abort": "an abort interrupts the native turn, and the thread can be used again",
    "codex:crash-in-a-turn": (
        "an app-server that dies ends its turn with a clear error, and the next turn resumes"
    ),
    "codex:resume-after-restart": "the thread of a session is resumed after a restart of Nacre",
    "codex:model-change-keeps-the-thread": (
        "model, effort, policy, sandbox, tier and directory are sent again with each turn"
    ),
    "codex:transient-threads": "a special turn has a thread of its own and costs the session none",
    "codex:rotation": "a thread that does not fit is replaced by one that knows what was said",
    "codex:damaged-thread": (
        "a thread that is too large or has a bad image is replaced, and the turn repeated once if "
        "it has done nothing"
    ),
    "codex:switch-of-harness": "a session may change its harness; both know what was said",
    "codex:reset-clears-the-thread": "/reset and /new start without the old thread",
    "codex:manual-compaction": "/compact starts the native compaction and returns at once",
    "codex:background-commands": (
        "a command that goes on after its turn is recorded as running, and ended when its session "
        "leaves the thread"
    ),
    "codex:native-shell": "native commands run in Codex and are recorded",
    "codex:trajectory": "requests to the app-server and its notifications are in the trajectory",
    "codex:crash-of-the-process": "an app-server that died is started again at the next use",
    "codex:dies-with-its-parent": "an app-server ends with the process that started it",
    "codex:orphans-are-ended": (
        "an app-server that survived its parent is ended at the next start, and no other process"
    ),
    "codex:chat-commands": "a chat command is answered without a model and is never context",
    "codex:status-runtime": "`/status` names the runtime separately from the model",
    "codex:queue-command": "`/queue` chooses per session whether messages steer or queue",
    "codex:stop-command": "`/stop` aborts the running turn and everything that is queued",
    "codex:new-and-reset": "`/new` and `/reset` give a key a fresh session; the old one stays",
    "codex:compact-command": "`/compact` compacts now, and messages do not steer a compaction",
    "codex:codex-commands": "`/codex` shows and controls Codex through the one app-server",
    "codex:bind-and-detach": "`/codex` binds a session to a thread and detaches it",
    "codex:native-compaction": (
        "`/compact` starts native compaction and returns; nothing else writes a summary"
    ),
    "codex:approve-command": "`/approve` answers an approval in the chat",
    "codex:owner-only-commands": "commands for the owner are refused to everybody else",
    # Prompt, context and observations of Codex turns.
    "codex:prompt-base-is-native": (
        "Codex keeps its base instructions and reads AGENTS.md itself; Nacre does not inject it"
    ),
    "codex:prompt-no-personality": ("threads and turns have the personality `none`"),
    "codex:prompt-profile-files": ("SOUL, IDENTITY, USER and TOOLS are developer instructions"),
    "codex:prompt-reference-files": (
        "skills, MEMORY.md and BOOTSTRAP.md are turn input, marked as data"
    ),
    "codex:prompt-current-on-resume": (
        "changed instructions and files reach a resumed thread, once"
    ),
    "codex:prompt-light-runs": ("light runs have neither project documents nor workspace files"),
    "codex:prompt-runtime-decides": (
        "the prompt follows the harness of the turn, not the provider"
    ),
    "codex:continuity": ("a new thread is told the conversation so far, without tool payloads"),
    "codex:harness-switch": ("what was said in another harness is told to a resumed thread, once"),
    "codex:prompt-and-context-plugins": (
        "plugins add to prompts; hints need the scope `codex_app_server`"
    ),
    "codex:lifecycle-hooks": (
        "llm_input, llm_output and agent_end fire with what Nacre knows, also on failure"
    ),
    "codex:adapter-observations": (
        "these events come from the adapter, not from requests to the model"
    ),
    "codex:context-engine": ("assemble, ingest and after_turn run around turns of Codex"),
    "codex:thread-bootstrap": (
        "a bootstrap has names, ids, shapes, redacted results, and no argument values"
    ),
    "codex:compaction-observed": (
        "before_compaction and after_compaction come from native compactions"
    ),
    "codex:compaction-metadata": ("their events have no counts, tokens or summary"),
    "codex:compaction-not-replaced": (
        "neither hooks, engines nor Nacre replace a native compaction"
    ),
    "codex:no-own-surfaces": ("Codex turns have no controls of Nacre's code mode and Tool Search"),
    "codex:no-request-capture": (
        "the trajectory has neither the requests of Codex to the model nor secrets"
    ),
    "codex:native-records": (
        "native tool records stay those of Codex; tool_result_persist does not see them"
    ),
    "codex:no-preflight-compaction": ("Nacre compacts no session before a turn of Codex"),
    "codex:no-other-summariser": ("if native compaction cannot start, nothing else summarises"),
    "codex:no-replay": ("a turn that failed in Codex is not repeated anywhere"),
    "codex:observations-cannot-block": (
        "observations of native calls neither block, delay nor change them"
    ),
    "codex:other-native-hooks": (
        "SessionStart and UserPromptSubmit stay controls of Codex; no plugin hook has them"
    ),
    "codex:history-is-native": ("Nacre does not edit the history of a thread"),
}


def requirement(*ids: str) -> Callable[[Test], Test]:
    """Say which statements a test holds the code to."""
    unknown = [name for name in ids if name not in REQUIREMENTS]
    if unknown:
        raise KeyError(f"no such requirement: {', '.join(unknown)}")

    def mark(test: Test) -> Test:
        return test

    return mark
