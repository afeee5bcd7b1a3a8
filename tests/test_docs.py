"""The documentation names what there is."""

import re
import subprocess
from collections import defaultdict
from importlib import import_module
from pathlib import Path
from typing import get_args

import pytest

import nacre
from nacre.config.code_mode import FIELDS, LIMITS, MAX_SUSPENDED_CELLS
from nacre.errors import ToolErrorCode
from nacre.hooks import HOOK_EVENTS
from nacre.large_json import MAX_VALUE_BYTES
from nacre.sandbox.results import CODE_OF_REASON, MAX_REQUEST_BACKLOG, Reason
from nacre.telemetry.spans import SpanName
from nacre.trajectory import EVENT_KINDS
from tests.forked_python import FORKED_PYTHON

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("reason", CODE_OF_REASON)
def test_every_reason_is_documented_with_its_code(reason: Reason) -> None:
    row = next(line for line in page("docs/limits.md").splitlines() if f"`{reason}`" in line)
    code = CODE_OF_REASON[reason]  # pyright: ignore[reportArgumentType]
    rows = [
        line for line in page("docs/limits.md").splitlines() if line.startswith(f"| `{code}` |")
    ]
    assert any(f"`{reason}`" in line for line in rows), row


def has_row_for(name: str, page_name: str) -> bool:
    """Whether a table of the page has a row that begins with the name, alone or among others."""
    cells = re.findall(r"^\| ([^|]*) \|", page(page_name), re.MULTILINE)
    return any(f"`{name}`" in cell for cell in cells)


@pytest.mark.parametrize("field", LIMITS)
def test_every_limit_is_documented_with_its_numbers(field: str) -> None:
    limit = LIMITS[field]
    row = f"| `{limit.key}` | {limit.default} | {limit.least} | {limit.most} |"
    assert row in page("docs/limits.md")


@pytest.mark.parametrize("key", FIELDS)
def test_every_key_of_the_config_is_documented(key: str) -> None:
    assert has_row_for(key, "docs/limits.md")


@pytest.mark.parametrize("code", get_args(ToolErrorCode))
def test_every_error_of_a_call_is_documented(code: str) -> None:
    assert has_row_for(code, "docs/tools.md")


@pytest.mark.parametrize("event", HOOK_EVENTS)
def test_every_hook_event_is_documented(event: str) -> None:
    assert has_row_for(event, "docs/approvals_and_hooks.md")


@pytest.mark.parametrize("kind", EVENT_KINDS)
def test_every_kind_of_trajectory_event_is_documented(kind: str) -> None:
    assert has_row_for(kind, "docs/trajectory.md")


@pytest.mark.parametrize("name", get_args(SpanName))
def test_every_span_is_documented(name: str) -> None:
    assert has_row_for(name, "docs/trajectory.md")


@pytest.mark.parametrize("name", nacre.__all__)
def test_every_public_name_is_documented(name: str) -> None:
    assert any(re.search(rf"\b{name}\b", path.read_text(encoding="utf-8")) for path in PAGES)


@pytest.mark.parametrize(
    "number", [MAX_REQUEST_BACKLOG, MAX_VALUE_BYTES, MAX_SUSPENDED_CELLS], ids=str
)
def test_fixed_limits_are_documented(number: int) -> None:
    assert re.search(rf"(?<![\d,]){number:,}(?![\d,])", page("docs/limits.md"))


def test_the_page_of_codex_has_every_setting_that_has_an_effect() -> None:
    rows = re.findall(
        r"^\| `plugins\.entries\.codex\.config\.([^`]+)` \| (`[^`]*`) \|.*\| ([^|]+) \|$",
        page("docs/configuration.md"),
        re.MULTILINE,
    )
    used = {(name, default) for name, default, said in rows if "no effect" not in said}
    table = page("docs/codex.md").partition("\n## Settings\n")[2].partition("\n## ")[0]
    found = set(re.findall(r"^\| `([^`]+)` \| (`[^`]*`) \|", table, re.MULTILINE))
    assert len(found) > 20
    assert found == used - {("appServer.transport", '`"stdio"`')}


def anchors_of(path: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.M)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_lead_to_a_page_and_a_heading(path: Path) -> None:
    links = re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", path.read_text(encoding="utf-8"))
    missing: list[str] = []
    for name, anchor in links:
        target = path.parent / name if name else path
        if not target.exists() or (anchor and anchor not in anchors_of(target)):
            missing.append(f"{name}#{anchor}")
    assert missing == []


def test_the_index_lists_every_page() -> None:
    listed = set(re.findall(r"\]\(([a-z_]+\.md)", page("docs/README.md")))
    assert listed == {path.name for path in ROOT.glob("docs/*.md")} - {"README.md"}


def test_the_readme_is_short() -> None:
    assert len(page("README.md").splitlines()) <= 140


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_qualified_name_exists(path: Path) -> None:
    names = re.findall(r"\bnacre(?:\.[a-z_]+)*\.[A-Za-z_]+", path.read_text(encoding="utf-8"))
    packages = {path.stem for path in (ROOT / "src" / "nacre").glob("[a-z]*")}
    qualified = {name for name in names if name.split(".")[1] in packages}
    assert sorted(name for name in qualified if not resolves(name)) == []


def resolves(name: str) -> bool:
    """Whether the name is that of a module, or of a member of one."""
    module, _, member = name.rpartition(".")
    try:
        import_module(name)
    except ModuleNotFoundError:
        return hasattr(import_module(module), member)
    return True


def test_nobody_is_told_to_install_the_package_of_somebody_else() -> None:
    # On PyPI, "nacre" is another project: the distribution is called nacre-ai.
    paths = [*PAGES, *ROOT.glob("src/nacre/**/*.py"), *ROOT.glob("examples/**/*.md")]
    wrong = re.compile(r"pip install [\"']?nacre(?!-ai)")
    found = [path.name for path in paths if wrong.search(path.read_text(encoding="utf-8"))]
    assert found == []


def modules_in_the_architecture() -> dict[str, set[str]]:
    """The modules that ARCHITECTURE.md lists, by top-level package."""
    listed: defaultdict[str, set[str]] = defaultdict(set)
    package = ""
    for line in page("ARCHITECTURE.md").splitlines():
        row = re.fullmatch(r"\| (?:\**`([a-z_]+)/.*?`\**|\(root\))? ?\| (.+) \|", line)
        if row is None:
            continue
        if not line.startswith("| |"):
            package = row[1] or ""
        listed[package].update(re.findall(r"`([a-z0-9_]+\.py)`", row[2]))
    return listed


def test_the_architecture_lists_every_module_in_its_package() -> None:
    existing: defaultdict[str, set[str]] = defaultdict(set)
    source = ROOT / "src" / "nacre"
    for path in source.rglob("*.py"):
        if path.name != "__init__.py":
            folders = path.relative_to(source).parts[:-1]
            existing[folders[0] if folders else ""].add(path.name)
    assert modules_in_the_architecture() == existing


def test_the_paths_in_the_architecture_name_functions_that_exist() -> None:
    steps = re.findall(
        r"^ *([A-Za-z_]+)(?:\.([a-z_]+))?(?:, [A-Z][A-Za-z.]+)? {2,}([a-z_/]+\.py)",
        page("ARCHITECTURE.md"),
        flags=re.MULTILINE,
    )
    assert len(steps) > 30
    for name, member, path in steps:
        text = (ROOT / "src" / "nacre" / path).read_text(encoding="utf-8")
        assert re.search(rf"^ *(?:class|def|async def) {name}\b", text, re.MULTILINE), (name, path)
        if member:
            assert re.search(rf"^ +(?:async )?def {member}\b", text, re.MULTILINE), (member, path)


PRINTED = {
    "docs/sessions.md": "s1 Pearls 0\n",
    "README.md": "['2 customers'] [3, 0]\n",
    "docs/approvals_and_hooks.md": (
        "pay {'to': 'Ada', 'amount': 500}: a large amount\n"
        "['paid 500 to Ada', 'paid 0 to Ada', 'blocked_by_hook']\n"
    ),
    "docs/chat_commands.md": "/weather [city]\n",
    "docs/library.md": "['exec', 'wait']\n{'apples': 3, 'pears': 0}\n",
    "docs/mcp.md": "['clock']\n['getCurrentTime', 'convertTime']\n",
    "docs/namespaces.md": "['open issue 1', 'open issue 2']\n",
    "docs/plugins.md": "['What is 2 + 2?', '4'] 2 earlier messages are left out.\n",
    "docs/sandbox.md": "as it comes: not_found\ncompleted [3, 0]\n",
    "docs/testing.md": "The mail is sent.\n[{'to': 'Ada'}] ('exec', 'wait')\n",
    "docs/tools.md": "openclaw:core:convert ['amount', 'to'] convert\n",
    "docs/tracing.md": (
        "agent turn\n"
        "  chat any\n"
        "  execute_tool exec\n"
        "    nacre.tool_call\n"
        "      nacre.cell\n"
        "        nacre.tool_call\n"
        "        nacre.suspend\n"
        "        nacre.resume\n"
        "        nacre.tool_call\n"
        "  chat any\n"
        "  execute_tool wait\n"
        "    nacre.tool_call\n"
        "  chat any\n"
    ),
    "docs/trajectory.md": (
        "exec > openclaw:core:login {'user': 'ada', 'password': '[redacted]'} completed\n9 lines\n"
    ),
}


def programs_of(name: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page(name), re.DOTALL)


@pytest.mark.parametrize("name", PRINTED)
def test_the_program_of_a_page_runs_as_it_stands(name: str, tmp_path: Path) -> None:
    (program,) = programs_of(name)
    script = tmp_path / "program.py"
    script.write_text(program, encoding="utf-8")
    done = subprocess.run(
        [FORKED_PYTHON, str(script)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == (PRINTED[name], "")


def test_no_program_of_a_page_is_left_out() -> None:
    names = [path.relative_to(ROOT).as_posix() for path in PAGES]
    assert {name for name in names if programs_of(name)} == set(PRINTED)
