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
}


def requirement(*ids: str) -> Callable[[Test], Test]:
    """Say which statements a test holds the code to."""
    unknown = [name for name in ids if name not in REQUIREMENTS]
    if unknown:
        raise KeyError(f"no such requirement: {', '.join(unknown)}")

    def mark(test: Test) -> Test:
        return test

    return mark
