"""One object of a document, or several of which later ones go over earlier ones, key by key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, cast

from nacre.config.documents import shown
from nacre.config.fields import member_path, misplaced
from nacre.config.reading import Setting
from nacre.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nacre.config.reading import Reading

_Text = TypeVar("_Text", bound=str)
_Whole = TypeVar("_Whole", int, None)
_Number = TypeVar("_Number", float, None)
_Any = TypeVar("_Any")


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """A value, and where it stands."""

    value: object
    path: str


class Section:
    """Reads settings by key. For one that is wrong the fault is noted, and its default is given.

    A member that is null is one that is not there.
    """

    def __init__(self, reading: Reading, layers: Sequence[Found], *, pattern: str) -> None:
        self.reading = reading
        self.pattern = pattern
        """Its path, with `<name>` and `[]` where there may be many."""
        self._layers = [
            (reading.object_at(layer.value, layer.path), layer.path) for layer in layers
        ]

    @property
    def path(self) -> str:
        """Of the layer that goes over the others."""
        return self._layers[-1][1]

    @property
    def found(self) -> Found:
        """The layer that goes over the others, as it was found."""
        members, path = self._layers[-1]
        return Found(value=members, path=path)

    def over(self, lower: Section) -> Section:
        """This one with another one below it."""
        layers = [
            Found(value=members, path=path) for members, path in (*lower._layers, *self._layers)
        ]
        return Section(self.reading, layers, pattern=lower.pattern)

    def find(self, key: str, *, default: object, allowed: str) -> Found | None:
        """What stands under the key in the highest layer that has it."""
        self._know(key)
        pattern = member_path(self.pattern, key)
        setting = Setting(path=pattern, default=default, allowed=allowed)
        self.reading.settings.setdefault(pattern, setting)
        return self._highest(key)

    def switch(self, key: str, default: bool) -> bool:
        allowed = "true and false"
        found = self.find(key, default=default, allowed=allowed)
        if found is None:
            return default
        if isinstance(found.value, bool):
            return found.value
        return self._refused(found, allowed, default)

    def whole(self, key: str, default: _Whole, *, least: int, most: int) -> int | _Whole:
        allowed = f"whole numbers from {least} to {most}"
        found = self.find(key, default=default, allowed=allowed)
        if found is None:
            return default
        value = found.value
        # 500.0 is how some writers of JSON spell 500.
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            return self._refused(found, allowed, default)
        return value

    def number(self, key: str, default: _Number, *, least: float, most: float) -> float | _Number:
        allowed = f"numbers from {least:g} to {most:g}"
        found = self.find(key, default=default, allowed=allowed)
        if found is None:
            return default
        value = found.value
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            return self._refused(found, allowed, default)
        # So written because NaN is neither less nor more than anything.
        return float(value) if least <= value <= most else self._refused(found, allowed, default)

    def choice(self, key: str, default: _Text, choices: Sequence[_Text]) -> _Text:
        allowed = ", ".join(f'"{choice}"' for choice in choices)
        found = self.find(key, default=default, allowed=allowed)
        if found is None:
            return default
        chosen = next((choice for choice in choices if choice == found.value), None)
        return self._refused(found, allowed, default) if chosen is None else chosen

    def text(
        self,
        key: str,
        default: str = "",
        *,
        allowed: str = "text",
        fits: Callable[[str], object] = bool,
    ) -> str:
        found = self.find(key, default=default, allowed=allowed)
        if found is None:
            return default
        return self._fitting(found, allowed, fits, default)

    def texts(
        self,
        key: str,
        default: tuple[str, ...] = (),
        *,
        allowed: str = "texts",
        fits: Callable[[str], object] = bool,
    ) -> tuple[str, ...]:
        found = self.find(key, default=list(default), allowed=f"a list of {allowed}")
        if found is None:
            return default
        if (items := self._items(found, f"a list of {allowed}")) is None:
            return default
        return tuple(self._fitting(item, allowed, fits, "") for item in items)

    def section(self, key: str) -> Section:
        """The object under the key, in every layer that has one."""
        self._know(key)
        layers = [
            Found(value=members.get(key), path=member_path(path, key))
            for members, path in self._layers
        ]
        return Section(self.reading, layers, pattern=member_path(self.pattern, key))

    def named(self, key: str) -> dict[str, Section]:
        """The objects in the object under the key, by their names, of all layers together."""
        self._know(key)
        by_name: dict[str, list[Found]] = {}
        for members, path in self._layers:
            place = member_path(path, key)
            for name, value in self.reading.object_at(members.get(key), place).items():
                self.reading.know(place, name)
                by_name.setdefault(name, []).append(
                    Found(value=value, path=member_path(place, name))
                )
        pattern = f"{member_path(self.pattern, key)}.<name>"
        return {
            name: Section(self.reading, layers, pattern=pattern) for name, layers in by_name.items()
        }

    def listed(self, key: str, *, allowed: str) -> list[Section]:
        """The objects in the list under the key."""
        found = self.find(key, default=[], allowed=allowed)
        if found is None:
            return []
        if not isinstance(found.value, (list, tuple)):
            self.reading.note(misplaced(found.path, found.value, allowed))
            return []
        pattern = f"{member_path(self.pattern, key)}[]"
        return [Section(self.reading, [item], pattern=pattern) for item in _items_of(found)]

    def others(self, keys: Sequence[str]) -> dict[str, Found]:
        """All members but these, by their keys, which may be any."""
        found: dict[str, Found] = {}
        for members, path in self._layers:
            for key in members:
                if key not in keys:
                    self.reading.know(path, key)
                    found[key] = Found(value=members[key], path=member_path(path, key))
        return found

    def all_of(self, key: str, *, default: object, allowed: str) -> list[Found]:
        """What stands under the key in each layer that has it, the lowest first."""
        self.find(key, default=default, allowed=allowed)
        return [
            Found(value=members[key], path=member_path(path, key))
            for members, path in self._layers
            if members.get(key) is not None
        ]

    def refuse(self, key: str, problem: str) -> None:
        """Note what else is wrong with the value of a key, or with its absence."""
        self.reading.note(ConfigError(self.path_of(key), problem))

    def path_of(self, key: str) -> str:
        """Where the value of the key stands, or would."""
        found = self._highest(key)
        return found.path if found else member_path(self.path, key)

    def used_key(self, *keys: str) -> str | None:
        """Which of the keys, of which a layer may have one, the highest layer has that has any."""
        for members, path in reversed(self._layers):
            used = [key for key in keys if members.get(key) is not None]
            if len(used) > 1:
                problem = f"has both `{used[0]}` and `{used[1]}`; write one of them"
                self.reading.note(ConfigError(path, problem))
            if used:
                return used[0]
        return None

    def has(self, key: str) -> bool:
        return self._highest(key) is not None

    def _know(self, key: str) -> None:
        for _, path in self._layers:
            self.reading.know(path, key)

    def _highest(self, key: str) -> Found | None:
        for members, path in reversed(self._layers):
            if members.get(key) is not None:
                return Found(value=members[key], path=member_path(path, key))
        return None

    def _items(self, found: Found, allowed: str) -> list[Found] | None:
        if not isinstance(found.value, (list, tuple)):
            return self._refused(found, allowed, None)
        return _items_of(found)

    def _fitting(
        self, found: Found, allowed: str, fits: Callable[[str], object], default: str
    ) -> str:
        if isinstance(found.value, str) and fits(found.value):
            return found.value
        return self._refused(found, allowed, default)

    def _refused(self, found: Found, allowed: str, default: _Any) -> _Any:
        self.reading.note(ConfigError(found.path, f"is {shown(found.value)}; allowed: {allowed}"))
        return default


def _items_of(found: Found) -> list[Found]:
    items = cast("Sequence[object]", found.value)
    return [Found(value=item, path=f"{found.path}[{at}]") for at, item in enumerate(items)]
