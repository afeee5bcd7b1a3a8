"""Changing the configuration: what would be wrong is never written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nacre.cli.config.checks import check
from nacre.cli.output import UsageProblem, warn
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

    def change_checked(text: str) -> str | None:
        changed = change(text)
        if changed is not None:
            _refuse_if_wrong(_parse_document(text, path), _parse_document(changed, path), path)
        return changed

    try:
        return change_config_text(path, change_checked)
    except ConfigError as error:
        raise UsageProblem(str(error)) from None


def _parse_document(text: str, path: Path) -> Mapping[str, object]:
    if not text.strip():
        return {}
    return object_without_showing(parse_json5(text, path=str(path)), str(path))


def _refuse_if_wrong(before: Mapping[str, object], after: Mapping[str, object], path: Path) -> None:
    found = check(after, path)
    faults = [problem for problem in found.problems if not _may_be_right_elsewhere(problem)]
    if faults:
        _refuse_if_none_is_repaired(
            faults, {str(old) for old in check(before, path).problems}, path
        )
    for text in (*map(str, found.problems), *found.warnings):
        warn(text)


def _refuse_if_none_is_repaired(faults: list[ConfigError], old: set[str], path: Path) -> None:
    """Who repairs a file with several faults does so one at a time."""
    # What an installed plugin asks for is no fault of a change to something else.
    counted = {str(it) for it in faults if not (_is_of_plugin(it) and str(it) in old)}
    if counted and not counted < old:
        listed = "".join(f"\n  {fault}" for fault in sorted(counted))
        raise UsageProblem(f"nothing was written, as {path} would be wrong:{listed}")


def _is_of_plugin(problem: ConfigError) -> bool:
    return problem.path.startswith("plugins.entries.")


def _may_be_right_elsewhere(problem: ConfigError) -> bool:
    return isinstance(problem, MissingReferenceError)
