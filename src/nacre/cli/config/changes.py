"""Changing the configuration: what would be wrong is never written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nacre.cli.config.checks import check
from nacre.cli.exit_status import UsageProblem
from nacre.cli.terminal import warn
from nacre.config.config_file import change_config_text
from nacre.config.fields import object_without_showing
from nacre.config.json5_text import parse_json5
from nacre.errors import ConfigError, MissingReferenceError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path


def change_file(path: Path, change: Callable[[str], str | None]) -> bool:
    """Write what `change` makes of the text if that is sound; false if it changes nothing.

    A variable or file that is missing here is warned of only: it may be there where Nacre is
    started. Raises UsageProblem.
    """

    def checked(text: str) -> str | None:
        changed = change(text)
        if changed is not None:
            _refuse_if_wrong(_document(text, path), _document(changed, path), path)
        return changed

    try:
        return change_config_text(path, checked)
    except ConfigError as error:
        raise UsageProblem(str(error)) from None


def _document(text: str, path: Path) -> Mapping[str, object]:
    if not text.strip():
        return {}
    return object_without_showing(parse_json5(text, path=str(path)), str(path))


def _refuse_if_wrong(before: Mapping[str, object], after: Mapping[str, object], path: Path) -> None:
    problems = check(after, path).problems
    faults = {str(problem) for problem in problems if not _may_be_right_elsewhere(problem)}
    if faults:
        old = {str(problem) for problem in check(before, path).problems}
        # Who repairs a file with several faults does so one at a time.
        if not faults < old:
            listed = "".join(f"\n  {fault}" for fault in sorted(faults))
            raise UsageProblem(f"nothing was written, as {path} would be wrong:{listed}")
    for problem in problems:
        warn(str(problem))


def _may_be_right_elsewhere(problem: ConfigError) -> bool:
    return isinstance(problem, MissingReferenceError)
