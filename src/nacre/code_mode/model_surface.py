"""What the model sees in code mode: definitions of `exec` and `wait`, and input of `exec`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Final, cast

from nacre.code_mode.cell import CellRefused, CodeModeResult, ExecInput, Failed
from nacre.code_mode.cells import UNAVAILABLE
from nacre.config import LANGUAGES, CodeModeConfig, Language
from nacre.json_types import describe_json_type
from nacre.lazy_dataclasses import dataclass, replace
from nacre.lazy_exports import lazy_pattern
from nacre.sandbox import CellId
from nacre.tools import (
    DefinitionFormat,
    format_definition,
    format_tool,
    is_control_tool,
    split_direct_tools,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from nacre.code_mode.namespaces import Namespace
    from nacre.json_types import JsonObject
    from nacre.tools import Catalog, Tool

EXEC_NAME: Final = "exec"
WAIT_NAME: Final = "wait"
_HEADER: Final = "tools.<name> by owner:"
_MORE_NAMES: Final = "(+{count} more: tools.search)"
_LINE_BREAK_BYTES: Final = len(r"\n")
_SEPARATOR: Final = ", "
_MAX_SERVER_NAME_BYTES: Final = 400

# The beginning of a long text is enough to detect its language.
_MAX_LINES: Final = 400
_MAX_LINE_CHARACTERS: Final = 400

_SHEBANG: Final = lazy_pattern(r"#!.{0,80}\b(?:sh|bash|zsh|python[\d.]*)\b")
# The only words that may follow a word and a space in JavaScript.
_NO_OPERATOR: Final = r"(?!(?:in|instanceof|of|as|satisfies)\b)"
_COMMANDS: Final = (
    "ls|cd|cat|grep|rg|curl|wget|git|gh|npm|npx|pnpm|yarn|pip|pip3|python|python3|node|deno|bun|echo"
    "|mkdir|rm|cp|mv|touch|chmod|sudo|apt|apt-get|brew|docker|kubectl|ssh|scp|tar|unzip|find|sed|awk"
    "|head|tail|source|which|make|bash|sh|zsh|uv|cargo"
)
# The patterns are large: they are compiled for lines that begin with one of these words.
_SHELL_WORDS: Final = frozenset(("$", *_COMMANDS.split("|")))
# fmt: off
_PYTHON_WORDS: Final = (
    "async", "class", "def", "elif", "for", "from", "if", "import", "print", "while", "with",
)
# fmt: on
_SHELL: Final = lazy_pattern(
    rf"(?:\$[ \t]+{_NO_OPERATOR}(?:[a-z]|\./)"
    # Two words in sequence, or a word and a string, are a syntax error in JavaScript.
    rf"|(?:{_COMMANDS})[ \t]+(?:{_NO_OPERATOR}[A-Za-z_\"']"
    # An option or a path would be a minus or a division of undefined names.
    r"|--?[A-Za-z]|~|\.{1,2}(?:/|[ \t]|$)|/[\w.]|<<))"
)
_PYTHON: Final = lazy_pattern(
    r"(?:(?:async[ \t]+)?def[ \t]+\w+[ \t]*\("
    r"|from[ \t]+[\w.]+[ \t]+import[ \t(]"
    r"|import[ \t]+[\w.]+(?:[ \t]+as[ \t]+\w+)?(?:[ \t]*,[ \t]*[\w.]+)*[ \t]*(?:#.*)?$"
    r"|class[ \t]+\w+[ \t]*(?:\([\w.,= \t]*\))?[ \t]*:[ \t]*(?:#.*)?$"
    # In JavaScript a parenthesis follows these.
    r"|(?:if|while|with)[ \t]+[^( \t].*:[ \t]*(?:#.*)?$"
    rf"|elif[ \t]+{_NO_OPERATOR}[\w\"'].*:[ \t]*(?:#.*)?$"
    r"|for[ \t]+(?!await\b)\w+(?:[ \t]*,[ \t]*\w+)*[ \t]+in[ \t].*:[ \t]*(?:#.*)?$"
    r"|print[ \t]*\([ \t]*[fFrRbB]{1,2}[\"']"
    r"|print[ \t]+[\"'])"
)
# Strings and comments, which may contain anything.
_TEXT: Final = lazy_pattern(r"\"[^\"]*\"|'[^']*'|//.*")
# These are JavaScript as well, or parts of it. They count only if the program is a syntax
# error, and are compiled then.
_MAYBE_PYTHON: Final = (
    r"^(?:try|else|finally)[ \t]*:[ \t]*(?:#.*)?$"
    r"|^(?:except|elif|raise|pass|del|global|nonlocal|assert)\b(?![ \t]*[=.(:])"
    r"|^(?:if|while|for|with|async|match|case)\b.*:[ \t]*(?:#.*)?$"
    r"|^#(?:[ \t]|$)"
    r"|\bfor[ \t]+\w+(?:[ \t]*,[ \t]*\w+)*[ \t]+in[ \t]"
    r"|\blambda\b[^=]*:"
    r"|(?<![\w$\"])[fFrRbB]\""
    r"|\b(?:not|and|or|is)[ \t]+[\w(\"]"
)
_TYPES: Final = (
    r"\b(?:const|let|var)[ \t]+[\w$]+[ \t]*:"
    r"|^(?:export[ \t]+|declare[ \t]+)?(?:interface|enum|namespace|type)[ \t]+[A-Za-z_$]"
    r"|[(,][ \t]*(?:[\w$]+|[\]}])\??[ \t]*:[ \t]*"
    r"(?:string|number|boolean|any|unknown|void|object|Record|Array|Promise|\{|[\w$.]+\[\])"
    r"|\)[ \t]*:[ \t]*[\w$<>\[\], .|]+(?:=>|\{)"
    r"|\b(?:as|satisfies)[ \t]+(?:const|any|unknown|string|number|boolean|[A-Z{\[])"
    r"|[\w$)\]]!(?:\.|\[|;|$)"
    r"|\b[\w$]+<[\w$\[\], .|]+>[ \t]*\("
)
_UNDEFINED_NAME: Final = lazy_pattern(r"ReferenceError: (?P<name>\w+) is not defined")
_PYTHON_NAMES: Final = {
    "None": "null",
    "True": "true",
    "False": "false",
    "print": "text(value) and console.log(value)",
    "len": "value.length",
    "str": "String(value)",
    "int": "Number(value)",
    "float": "Number(value)",
    "dict": "objects: {}",
    "range": "for (let i = 0; i < n; i++)",
    "enumerate": "items.entries()",
    "sorted": "items.toSorted()",
    "isinstance": "typeof and instanceof",
    "asyncio": "await and Promise.all",
}
_FENCE_LINE: Final = lazy_pattern(r"[ \t]{0,3}(?P<ticks>`{3,})(?P<info>[^`\n]*)")


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSurface:
    """The tools of a run: those that the model sees, and those that programs call."""

    is_code_mode: bool
    direct_tools: tuple[Tool, ...]
    """The tools that the model sees; in code mode only direct-only tools."""
    cataloged: tuple[Tool, ...]

    @property
    def tool_names(self) -> tuple[str, ...]:
        """The names of all tools that the model sees."""
        direct = tuple(tool.name for tool in self.direct_tools)
        return (EXEC_NAME, WAIT_NAME, *direct) if self.is_code_mode else direct

    def definitions(
        self,
        format: DefinitionFormat,
        *,
        config: CodeModeConfig,
        catalog: Catalog,
        namespaces: Sequence[Namespace],
        mcp_servers: Sequence[str],
    ) -> list[JsonObject]:
        """The definitions of these tools, in the format of a provider."""
        direct = [format_tool(tool, format) for tool in self.direct_tools]
        if not self.is_code_mode:
            return direct
        described = exec_description(
            catalog=catalog,
            namespaces=namespaces,
            mcp_servers=mcp_servers,
            name_index_bytes=config.name_index_bytes,
            languages=config.languages,
        )
        return [
            format_definition(EXEC_NAME, described, exec_parameters(config), format),
            format_definition(WAIT_NAME, wait_description(format), wait_parameters(), format),
            *direct,
        ]


def is_code_mode_active(
    config: CodeModeConfig,
    *,
    tools: Sequence[Tool],
    has_servers: bool = False,
    tools_disabled: bool = False,
) -> bool:
    """Whether the model sees `exec` and `wait`; `tools` are those that policy permits.

    A run without tools stays without tools.
    """
    if not config.enabled or tools_disabled:
        return False
    return has_servers or not all(is_control_tool(tool) for tool in tools)


def visible_tools(
    tools: Sequence[Tool],
    *,
    config: CodeModeConfig,
    has_servers: bool = False,
    tools_disabled: bool = False,
) -> ModelSurface:
    """The surface of a run; `tools` are those that policy permits.

    Raises CatalogError if a direct-only tool is named `exec` or `wait`.
    """
    is_active = is_code_mode_active(
        config, tools=tools, has_servers=has_servers, tools_disabled=tools_disabled
    )
    if not is_active:
        shown = () if tools_disabled else tuple(tools)
        return ModelSurface(is_code_mode=False, direct_tools=shown, cataloged=())
    direct, cataloged = split_direct_tools(
        tools, controls=(EXEC_NAME, WAIT_NAME), owner="code mode"
    )
    return ModelSurface(is_code_mode=True, direct_tools=direct, cataloged=cataloged)


def name_index(catalog: Catalog, *, max_bytes: int) -> str:
    """A line per owner; empty if there are no names or no room.

    If not all names fit, names of each owner are added in turn. Bytes are counted in JSON, with the
    line break before the text.
    """
    owners = _names_by_owner(catalog)
    total = sum(len(names) for names in owners.values())
    header_bytes = _LINE_BREAK_BYTES + _json_bytes(_HEADER)
    shown = _fit_names(owners, max_bytes - header_bytes)
    count = sum(len(names) for names in shown.values())
    if count == total:
        return "\n".join([_HEADER, *_format_lines(shown)]) if total else ""
    rest_bytes = _LINE_BREAK_BYTES + len(_MORE_NAMES.format(count=total))
    shown = _fit_names(owners, max_bytes - header_bytes - rest_bytes)
    count = sum(len(names) for names in shown.values())
    if not count:
        return ""
    return "\n".join([_HEADER, *_format_lines(shown), _MORE_NAMES.format(count=total - count)])


def join_within(names: Sequence[str], max_bytes: int) -> str:
    """The names with commas between them, and the number of those that do not fit."""
    shown = list(_take_fitting(names, max_bytes))
    left = len(names) - len(shown)
    return _SEPARATOR.join(shown) + (f" (+{left} more)" if left else "")


def _names_by_owner(catalog: Catalog) -> dict[str, list[str]]:
    """The names that programs use, in the order of the catalog: after `tools.`, or the id."""
    callable_names = {tool_id: name for name, tool_id in catalog.names.items()}
    owners: dict[str, list[str]] = {}
    for entry in catalog.guest_entries:
        name = callable_names.get(entry.id, entry.id)
        owners.setdefault(entry.tool.owner, []).append(name)
    return owners


def _fit_names(owners: dict[str, list[str]], max_bytes: int) -> dict[str, list[str]]:
    shown: dict[str, list[str]] = {owner: [] for owner in owners}
    left = max_bytes
    for owner, name in _interleave(owners):
        cost = _json_bytes(name) + len(_SEPARATOR)
        if not shown[owner]:
            cost = _LINE_BREAK_BYTES + _json_bytes(f"{owner}: {name}")
        if cost <= left:
            shown[owner].append(name)
            left -= cost
        if left <= len(_SEPARATOR):
            break
    return shown


def _interleave(owners: dict[str, list[str]]) -> Iterator[tuple[str, str]]:
    turns: Iterable[tuple[tuple[str, str] | None, ...]] = zip_longest(
        *([(owner, name) for name in names] for owner, names in owners.items())
    )
    return (turn for turn in chain.from_iterable(turns) if turn is not None)


def _format_lines(shown: dict[str, list[str]]) -> list[str]:
    return [f"{owner}: {_SEPARATOR.join(names)}" for owner, names in shown.items() if names]


def _take_fitting(names: Sequence[str], max_bytes: int) -> Iterator[str]:
    left = max_bytes
    for name in names:
        left -= _json_bytes(name) + len(_SEPARATOR)
        if left < 0:
            return
        yield name


def _json_bytes(text: str) -> int:
    # Most SDKs escape non-ASCII characters, which then take six or twelve bytes.
    return len(json.dumps(text)) - 2


_LANGUAGE_NAMES: Final = {"javascript": "JavaScript", "typescript": "TypeScript"}

_WAIT: Final = (
    "Continue an exec program whose result has status waiting. Returns the same kind of result."
)
# MCP has no turns: there, a program waits as long as the session of the client.
_ENDS_WITH_TURN: Final = " Do so before you answer: a waiting program ends with its turn."


def wait_description(format: DefinitionFormat) -> str:
    """Describe `wait` and how long a program waits."""
    return _WAIT if format == "mcp" else _WAIT + _ENDS_WITH_TURN


_PROGRAM: Final = (
    "Run a {languages} program. code is the body of an async function: await calls, and return the"
    " value you need, as plain data."
)
_TOOLS: Final = (
    "await tools.<name>(input) or tools.call(id, input) gives a tool's result; a failed call throws"
    " an Error to catch (message, code, toolId). tools.search(task, {{limit}}) finds tools,"
    " tools.describe(id) gives a tool's input schema: look before you guess. ALL_TOOLS holds"
    " {count} {{id, name, description}}.\n"
    'Example: const [tool] = await tools.search("send mail"); return tools.describe(tool.id)'
)
_MCP: Final = (
    "MCP servers: {servers}. await MCP.<server>.<tool>(input) gives {{content, structuredContent,"
    ' isError}}; MCP.$search(task) finds tools, API.read("mcp/<server>.d.ts") declares them.'
)
_REST: Final = (
    "Do the whole task in one program: loops, filters, Promise.all for calls in parallel.\n"
    "text(value), json(value), image(part), console.log add output. On status waiting, call wait"
    " with the runId; await yield_control(reason) waits on purpose.\n"
    "No imports, files or network but through tools. Nothing is kept between programs."
)


def exec_description(
    *,
    catalog: Catalog,
    namespaces: Sequence[Namespace],
    mcp_servers: Sequence[str] = (),
    name_index_bytes: int,
    languages: Sequence[Language],
) -> str:
    """Describe the API, then the MCP servers, namespaces and tools of this run.

    `name_index_bytes` limits the size of the list of names in the JSON of the definition.
    """
    shown_languages = " or ".join(_LANGUAGE_NAMES[language] for language in languages)
    parts = [_PROGRAM.format(languages=shown_languages)]
    # A run with only MCP servers needs no text about other tools.
    if catalog.guest_entries or not mcp_servers:
        parts.append(_TOOLS.format(count=len(catalog.guest_entries)))
    if mcp_servers:
        parts.append(_MCP.format(servers=join_within(mcp_servers, _MAX_SERVER_NAME_BYTES)))
    parts.append(_REST)
    parts.extend(map(_namespace_text, namespaces))
    index = name_index(catalog, max_bytes=name_index_bytes)
    if index:
        parts.append(index)
    return "\n".join(parts)


def _namespace_text(namespace: Namespace) -> str:
    # One line each, so that the text of a plugin cannot look like another part.
    said = " ".join(f"{namespace.description} {namespace.prompt}".split())
    return f"Global {namespace.global_name}: {said}"


# The input of `exec` and `wait`.

_FENCE_LANGUAGES: Final[Mapping[str, Language]] = {
    "": "javascript",
    "javascript": "javascript",
    "js": "javascript",
    "mjs": "javascript",
    "ts": "typescript",
    "typescript": "typescript",
}
_FIELDS: Final = ("code", "command", "language")
_MAX_SHOWN_CHARACTERS: Final = 60
_WHAT_EXEC_TAKES: Final = (
    "exec takes a JavaScript program as `code`: the body of an async function, such as "
    '`return await tools.call("<id>", {})`'
)
_RUN_ID: Final = lazy_pattern(r"run_[A-Za-z0-9_-]{1,128}")
_MAX_SHOWN_ID: Final = 60


def exec_parameters(config: CodeModeConfig) -> JsonObject:
    """JSON Schema of the input. It is flat: some providers refuse `anyOf` and `oneOf`."""
    return {
        "type": "object",
        "properties": {
            "code": {"type": "string"},
            "language": {"type": "string", "enum": list(config.languages)},
        },
        "required": ["code"],
    }


def parse_exec_input(arguments: object, config: CodeModeConfig) -> ExecInput:
    """Parse the arguments of `exec`. `command` is another name for `code`.

    One Markdown fence around the program is removed. Other keys are ignored, since models often add
    some. Raises CellRefused.
    """
    if not isinstance(arguments, Mapping):
        raise _invalid(f"the input is {describe_json_type(arguments)}, not an object")
    given = cast("Mapping[object, object]", arguments)
    code = _program_text(given)
    language = _read_language(given.get("language"), config)
    return _parse_program(code, language, config)


def _program_text(given: Mapping[object, object]) -> str:
    code, command = (_read_text(given, name) for name in ("code", "command"))
    if code and command and code != command:
        raise _invalid("`code` and `command` differ; give one of them")
    program = code or command
    if program:
        return program
    others = [str(key)[:_MAX_SHOWN_CHARACTERS] for key in given if key not in _FIELDS][:5]
    problem = f"`code` is missing; given: {', '.join(others)}" if others else "`code` is empty"
    raise _invalid(problem)


def _read_text(given: Mapping[object, object], name: str) -> str:
    value = given.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _invalid(f"`{name}` is {describe_json_type(value)}, not a string")
    return value if value.strip() else ""


def _read_language(value: object, config: CodeModeConfig) -> Language | None:
    if value is None:
        return None
    if value not in LANGUAGES:
        shown = (
            repr(value[:_MAX_SHOWN_CHARACTERS])
            if isinstance(value, str)
            else describe_json_type(value)
        )
        raise _unsupported_language(f"`language` is {shown}", config)
    return _require_enabled(value, config)


def _parse_program(code: str, language: Language | None, config: CodeModeConfig) -> ExecInput:
    fenced = fenced_program(code) if "```" in code else None
    if fenced is not None:
        if fenced.language not in _FENCE_LANGUAGES:
            shown = fenced.language[:_MAX_SHOWN_CHARACTERS]
            raise _invalid(f"the code is fenced as {shown!r}")
        if language is None and _FENCE_LANGUAGES[fenced.language] == "typescript":
            language = _require_enabled("typescript", config)
        code = fenced.code
        if not code.strip():
            raise _invalid("the Markdown fence is empty")
    elif has_fences(code):
        raise _invalid("the code is Markdown: send the program alone, or one fenced block")
    _refuse_other_languages(code)
    return ExecInput(code=code, language=language or _default_language(config))


def _refuse_other_languages(code: str) -> None:
    if is_shell(code):
        raise _invalid(
            "this looks like a shell command, and exec is not a shell; "
            'if this run has a shell tool, tools.search("shell") finds it'
        )
    if is_python(code):
        raise _invalid("this looks like Python")
    if starts_with_hash_comment(code):
        raise _invalid("the first line starts with `#`, which is not a comment in JavaScript")


def _default_language(config: CodeModeConfig) -> Language:
    """JavaScript; if it is disabled, TypeScript, which includes it."""
    return "javascript" if "javascript" in config.languages else config.languages[0]


def _require_enabled(language: Language, config: CodeModeConfig) -> Language:
    if language not in config.languages:
        raise _unsupported_language(
            f"{language} is switched off (`tools.codeMode.languages`)", config
        )
    return language


def _unsupported_language(problem: str, config: CodeModeConfig) -> CellRefused:
    allowed = " or ".join(f'"{language}"' for language in config.languages)
    return CellRefused(f"{problem}; exec runs {allowed}", reason="unsupported_language")


def _invalid(problem: str) -> CellRefused:
    return CellRefused(f"{problem}. {_WHAT_EXEC_TAKES}", reason="invalid_input")


def wait_parameters() -> JsonObject:
    """JSON Schema of the input."""
    return {
        "type": "object",
        "properties": {"runId": {"type": "string"}},
        "required": ["runId"],
    }


def parse_wait_input(arguments: object) -> CellId:
    """Parse the arguments of `wait`. Raises CellRefused for an invalid id."""
    if not isinstance(arguments, Mapping):
        raise CellRefused("wait takes an object: {runId}", reason="invalid_input")
    given = cast("Mapping[object, object]", arguments).get("runId")
    if given is None:
        raise CellRefused(
            "wait needs `runId`, from the exec result whose status is waiting",
            reason="invalid_input",
        )
    if not isinstance(given, str):
        raise CellRefused(
            f"`runId` is {describe_json_type(given)}, not a string", reason="invalid_input"
        )
    if not _RUN_ID.fullmatch(given.strip()):
        # Models sometimes pass the id of a shell session or of another job.
        raise CellRefused(
            f"{UNAVAILABLE} {given[:_MAX_SHOWN_ID]!r} is not a run id of exec; "
            "take it from the result whose status is waiting",
            reason="run_unavailable",
        )
    return CellId(given.strip())


@dataclass(frozen=True, kw_only=True, slots=True)
class FencedProgram:
    """The content of a Markdown fence, and the language after its opening ticks."""

    code: str
    language: str


def is_shell(code: str) -> bool:
    line = _first_line(code)
    if line.startswith("#!"):
        return bool(_SHEBANG.match(line)) and "python" not in line
    words = line.split(maxsplit=1)
    return bool(words) and words[0] in _SHELL_WORDS and bool(_SHELL.match(line))


def is_python(code: str) -> bool:
    line = _first_line(code)
    if line.startswith("#!") and _SHEBANG.match(line):
        return "python" in line
    return any(
        line.startswith(_PYTHON_WORDS) and _PYTHON.match(line) for line in _plain_lines(code)
    )


def add_language_hint(
    result: CodeModeResult, code: str, *, language: Language, languages: tuple[Language, ...]
) -> CodeModeResult:
    """Add to an error in which language the program seems to be; `languages` are those allowed."""
    if not isinstance(result, Failed):
        return result
    hint = ""
    if result.reason == "syntax_error" and language == "javascript":
        hint = _suggest_language(code, languages)
    elif result.reason == "guest_error":
        hint = _translate_python_name(result.error)
    if not hint:
        return result
    # Before the lines with the positions.
    message, line_break, frames = result.error.partition("\n")
    return replace(result, error=f"{message} ({hint}){line_break}{frames}")


def _suggest_language(code: str, languages: tuple[Language, ...]) -> str:
    lines = [_TEXT.sub('""', line) for line in _plain_lines(code)]
    if any(map(re.compile(_MAYBE_PYTHON).search, lines)):
        return "this looks like Python; exec takes JavaScript"
    if not any(map(re.compile(_TYPES).search, lines)):
        return ""
    if "typescript" in languages:
        return 'this looks like TypeScript; for a program with types, pass language: "typescript"'
    return "this looks like TypeScript; leave the types out"


def _translate_python_name(error: str) -> str:
    found = _UNDEFINED_NAME.match(error)
    meant = _PYTHON_NAMES.get(found["name"]) if found else None
    return f"this is Python; JavaScript has {meant}" if meant else ""


def starts_with_hash_comment(code: str) -> bool:
    """Whether it starts with a comment of shell or Python, or with a Markdown heading."""
    return _first_line(code).startswith("# ")


def fenced_program(code: str) -> FencedProgram | None:
    """The program, if the text is exactly one Markdown fence."""
    lines = code.strip().split("\n")
    fences = [found for line in lines if (found := _FENCE_LINE.fullmatch(line.rstrip()))]
    opening = _FENCE_LINE.fullmatch(lines[0].rstrip())
    if opening is None or len(fences) != 2 or fences[1].group() != lines[-1].rstrip():
        return None
    if len(fences[1]["ticks"]) < len(opening["ticks"]) or fences[1]["info"].strip():
        return None
    words = opening["info"].split()
    return FencedProgram(code="\n".join(lines[1:-1]), language=words[0].lower() if words else "")


def has_fences(code: str) -> bool:
    """Whether a line is a Markdown fence. Outside of comments no line of a program is one."""
    if "```" not in code or "/*" in code:
        return False
    return any(_FENCE_LINE.fullmatch(line.rstrip()) for line in code.split("\n"))


def _first_line(code: str) -> str:
    """The first line that is neither empty nor a `//` comment."""
    for line in code.split("\n", _MAX_LINES)[:_MAX_LINES]:
        text = line[:_MAX_LINE_CHARACTERS].strip()
        if text and not text.startswith("//"):
            return text
    return ""


def _plain_lines(code: str) -> Iterator[str]:
    """The lines up to the first template or block comment, which may contain anything."""
    for line in code.split("\n", _MAX_LINES)[:_MAX_LINES]:
        if "`" in line or "/*" in line:
            return
        if len(line) <= _MAX_LINE_CHARACTERS:
            yield line.strip()
