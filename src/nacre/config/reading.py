"""One pass over a whole document: every fault is noted, and which settings there are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from nacre.config.expansion import Expander
from nacre.config.fields import member_path, object_without_showing
from nacre.config.setting_paths import unknown_key
from nacre.errors import ConfigError, MissingReferenceError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_Value = TypeVar("_Value")


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """One setting that a document may have."""

    path: str
    """With `<name>` and `[]` where there may be many."""
    default: object
    allowed: str


class Reading:
    """What the readers of all sections share. Reading files blocks, so not in an event loop."""

    def __init__(self, *, environment: Mapping[str, str], folder: Path) -> None:
        self.environment = environment
        self.folder = folder
        """What relative paths are relative to: where the document is."""
        self.expander = Expander(environment=environment, workspace=Path.cwd())
        self.warnings: list[str] = []
        self.settings: dict[str, Setting] = {}
        # What several agents share is read once for each of them, but told once.
        self._problems: dict[tuple[str, str], ConfigError] = {}
        self._objects: dict[str, Mapping[str, object]] = {}
        self._known_keys: dict[str, dict[str, None]] = {}

    @property
    def problems(self) -> list[ConfigError]:
        """In the order in which they were found."""
        return list(self._problems.values())

    @property
    def known_paths(self) -> frozenset[str]:
        """Every setting and section that a reader has asked for, where it stands or would."""
        return frozenset(
            member_path(path, key) for path, keys in self._known_keys.items() for key in keys
        )

    def note(self, problem: ConfigError) -> None:
        self._problems.setdefault((problem.path, problem.problem), problem)

    def has_problem_at(self, start: str) -> bool:
        """Whether there is one whose path begins like this."""
        return any(path.startswith(start) for path, _ in self._problems)

    def missing_below(self, path: str) -> str:
        """The first variable or file that something in the object at this path lacks, in words."""
        starts = (f"{path}.", f"{path}[")
        for problem in self._problems.values():
            if isinstance(problem, MissingReferenceError) and problem.path.startswith(starts):
                return str(problem)
        return ""

    def warn(self, path: str, problem: str) -> None:
        text = f"`{path}` {problem}"
        if text not in self.warnings:
            self.warnings.append(text)

    def attempt(self, read: Callable[[], _Value], default: _Value) -> _Value:
        """What `read` gives; the default if it raises a ConfigError, which is noted."""
        try:
            return read()
        except ConfigError as problem:
            self.note(problem)
            return default

    def object_at(self, value: object, path: str) -> Mapping[str, object]:
        """The members of an object whose keys will be checked."""
        members = self.attempt(lambda: object_without_showing(value, path), {})
        self._objects[path] = members
        return members

    def know(self, path: str, key: str) -> None:
        """There is such a setting in the object at this path."""
        self._known_keys.setdefault(path, {})[key] = None

    def note_unknown_keys(self) -> None:
        """To be called last: a key is unknown if no reader has asked for it."""
        for path, members in self._objects.items():
            known = self._known_keys.get(path, {})
            for key in members:
                if key not in known:
                    self.note(unknown_key(path, key, known))
