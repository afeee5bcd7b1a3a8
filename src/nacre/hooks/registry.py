"""The registered hooks of each event, in the order in which they are called."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar, cast

from nacre.errors import HookError
from nacre.hooks.events import HOOK_EVENTS, HookEvent

HookFunction: TypeAlias = Callable[..., object]
"""A function, async or not, that takes the event and returns an answer."""

_EventAndFunction: TypeAlias = tuple[HookEvent, object]
_Function = TypeVar("_Function", bound=HookFunction)

_MARK: Final = "nacre_hook_event"
_ALLOWED: Final = (
    "allowed: an object with a method named "
    f"{' or '.join(HOOK_EVENTS)}, a function of that name or marked with @hook(...), "
    'a pair ("before_tool_call", function), a mapping {"before_tool_call": function}'
)


def hook(event: HookEvent) -> Callable[[_Function], _Function]:
    """Mark a function as a hook for an event."""
    known = _parse_event(event)

    def mark(function: _Function) -> _Function:
        setattr(function, _MARK, known)
        return function

    return mark


@dataclass(frozen=True, kw_only=True, slots=True)
class RegisteredHook:
    """One function for one event."""

    event: HookEvent
    function: HookFunction
    owner: str
    """The id of the plugin that registered it; empty for a hook of the application."""
    priority: int
    is_async: bool

    @property
    def name(self) -> str:
        """The name of the function and its owner, for messages."""
        function: object = getattr(self.function, "__qualname__", type(self.function).__qualname__)
        return f"{function} of {self.owner}" if self.owner else str(function)


class Hooks:
    """Registered hooks, highest priority first, then in the order they were added.

    A synchronous function runs in a worker thread, so it may block. Simultaneous calls may run it
    in several threads at once.
    """

    def __init__(self, hooks: Iterable[object] = ()) -> None:
        self._by_event: dict[HookEvent, tuple[RegisteredHook, ...]] = dict.fromkeys(HOOK_EVENTS, ())
        for item in hooks:
            self.add(item)

    def add(
        self,
        hook: object,
        *,
        event: HookEvent | None = None,
        owner: str = "",
        priority: int = 0,
    ) -> None:
        """Register a hook: an object, a function, a pair or a mapping; raises HookError.

        If a part of it is invalid, nothing is registered.
        """
        functions: Sequence[_EventAndFunction] = (
            _find_functions(hook) if event is None else [(_parse_event(event), hook)]
        )
        registered = [
            _make_registered(found, function, owner=owner, priority=priority)
            for found, function in functions
        ]
        for item in registered:
            # Sorting keeps the order of equal priorities.
            self._by_event[item.event] = tuple(
                sorted((*self._by_event[item.event], item), key=lambda one: -one.priority)
            )

    def remove_owner(self, owner: str) -> None:
        """Remove all hooks of a plugin; events that are being processed still use them."""
        for event, hooks in self._by_event.items():
            self._by_event[event] = tuple(item for item in hooks if item.owner != owner)

    def for_event(self, event: HookEvent) -> tuple[RegisteredHook, ...]:
        return self._by_event[event]


def _make_registered(
    event: HookEvent, function: object, *, owner: str, priority: int
) -> RegisteredHook:
    if not callable(function) or isinstance(function, type):
        kind = "class" if isinstance(function, type) else type(function).__name__
        raise HookError(f"the hook for {event} is a {kind}; it must be a function")
    return RegisteredHook(
        event=event,
        function=function,
        owner=owner,
        priority=priority,
        is_async=_is_async(function),
    )


def _find_functions(hook: object) -> Sequence[_EventAndFunction]:
    found: Sequence[_EventAndFunction] = ()
    if isinstance(hook, Mapping):
        members = cast("Mapping[object, object]", hook)
        found = [(_parse_event(event), function) for event, function in members.items()]
    elif isinstance(hook, tuple):
        pair = cast("tuple[object, ...]", hook)
        found = ((_parse_event(pair[0]), pair[1]),) if len(pair) == 2 else ()
    elif isinstance(hook, type):
        raise HookError(f"{hook.__qualname__} is a class; pass an instance of it; {_ALLOWED}")
    else:
        found = _find_methods(hook)
    if not found:
        raise HookError(f"{_describe_hook(cast('object', hook))} is not a hook; {_ALLOWED}")
    return found


def _find_methods(hook: object) -> Sequence[_EventAndFunction]:
    named: object = getattr(hook, _MARK, None) or getattr(hook, "__name__", None)
    if callable(hook) and named in HOOK_EVENTS:
        return ((_parse_event(named), hook),)
    return [(event, getattr(hook, event)) for event in HOOK_EVENTS if hasattr(hook, event)]


def _parse_event(event: object) -> HookEvent:
    for known in HOOK_EVENTS:
        if event == known:
            return known
    raise HookError(f"there is no hook event {event!r}; known: {', '.join(HOOK_EVENTS)}")


def _is_async(function: HookFunction) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 (the method itself is needed)
    )


def _describe_hook(hook: object) -> str:
    name: object = getattr(hook, "__qualname__", None)
    return f"the function {name}" if name and callable(hook) else f"a {type(hook).__qualname__}"
