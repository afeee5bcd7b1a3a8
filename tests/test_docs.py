"""The documentation names what there is."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from nacre.config.code_mode import LIMITS
from nacre.sandbox.limits import MAX_REQUEST_BACKLOG, Limits
from nacre.sandbox.results import CODE_OF_REASON, Reason

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


@pytest.mark.parametrize("field", Limits.__dataclass_fields__)
def test_every_limit_is_documented_with_its_numbers(field: str) -> None:
    limit = LIMITS[field]
    row = f"| `{limit.key}` | {limit.default} | {limit.least} | {limit.most} |"
    assert row in page("docs/limits.md")


def test_the_backlog_is_documented() -> None:
    assert f"{MAX_REQUEST_BACKLOG:,}" in page("docs/limits.md")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8"))
    missing = [target for target in targets if not (path.parent / target).exists()]
    assert missing == []


def test_every_module_of_the_sandbox_has_a_line_in_the_architecture() -> None:
    text = page("ARCHITECTURE.md")
    modules = [
        path.name
        for folder in ("sandbox", "sandbox/worker")
        for path in (ROOT / "src" / "nacre" / folder).glob("*.py")
        if path.name != "__init__.py"
    ]
    assert [name for name in modules if f"`{name}`" not in text] == []


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("README.md", "[3, 3]\n"),
        ("docs/library.md", "as it comes: not_found\ncompleted [3, 0]\n"),
    ],
)
def test_the_programs_of_the_documentation_run_as_they_stand(name: str, printed: str) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", page(name), re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == (printed, "")
