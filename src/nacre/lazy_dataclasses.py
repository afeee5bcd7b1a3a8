"""Dataclasses whose methods are generated when they are first used.

`dataclasses.dataclass` compiles up to six functions for each class. In a process that starts to run
one program, that was a third of all imports, for classes of which most are never instantiated.
"""

from __future__ import annotations

import dataclasses
import inspect
import threading
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, TypeVar, dataclass_transform

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_Class = TypeVar("_Class")

_FIELDS: Final = "__dataclass_fields__"
# In this order: until the last is replaced, other threads wait for the one that generates.
_GENERATED: Final = ("__dataclass_params__", "__match_args__", _FIELDS, "__init__")
# Reentrant, because the fields of a class include those of its bases.
_generating = threading.RLock()


@dataclass_transform(field_specifiers=(dataclasses.field,))
def dataclass(
    *,
    frozen: bool = False,
    kw_only: bool = False,
    slots: bool = False,
    weakref_slot: bool = False,
    eq: bool = True,
) -> Callable[[type[_Class]], type[_Class]]:
    """Like `dataclasses.dataclass`, but the first instance, or the first use of the fields,
    generates the methods. A mistake in the fields is an error then, not at the definition."""

    def decorate(cls: type[_Class]) -> type[_Class]:
        annotations = inspect.get_annotations(cls)
        defaults = {name: cls.__dict__[name] for name in annotations if name in cls.__dict__}
        if slots:
            cls = _add_slots(cls, annotations, weakref_slot=weakref_slot)
            if frozen:
                _set_all(cls, {"__getstate__": _get_state, "__setstate__": _set_state})
        # Without a text, `dataclasses` would write the signature of each class.
        members = {
            "__annotations__": annotations, "__module__": cls.__module__, "__doc__": "-", **defaults
        }  # fmt: skip

        def generate() -> None:
            with _generating:
                if isinstance(cls.__dict__[_FIELDS], _LazyFields):
                    model: type[Any] = type(cls.__name__, cls.__bases__, dict(members))
                    # For a frozen class it would compile methods that are shared here. A class
                    # with a frozen base has to be frozen itself.
                    dataclasses.dataclass(
                        init=False, repr=False, eq=False, kw_only=kw_only,
                        frozen=frozen and cls.__base__ is not object,
                    )(model)  # fmt: skip
                    model.__dataclass_params__.frozen = frozen
                    model.__init__ = _make_init(cls, model, frozen=frozen)
                    fields = dataclasses.fields(model)
                    _set_all(cls, _shared_methods(cls, fields, frozen=frozen, eq=eq))
                    _set_all(cls, {name: model.__dict__[name] for name in _GENERATED})

        def generate_and_init(self: object, *args: object, **kwargs: object) -> None:
            generate()
            vars(cls)["__init__"](self, *args, **kwargs)

        _set_all(cls, {_FIELDS: _LazyFields(generate), "__init__": generate_and_init})
        return cls

    return decorate


class _LazyFields:
    """The fields of a class whose methods are not generated yet."""

    def __init__(self, generate: Callable[[], None]) -> None:
        self._generate = generate

    def __get__(self, instance: object, owner: type[Any]) -> dict[str, dataclasses.Field[Any]]:
        self._generate()
        return getattr(owner, _FIELDS)


def _add_slots(
    cls: type[_Class], annotations: dict[str, object], *, weakref_slot: bool
) -> type[_Class]:
    """A copy of the class with slots instead of attributes for its fields."""
    left_out = {*annotations, "__dict__", "__weakref__"}
    members = {name: value for name, value in cls.__dict__.items() if name not in left_out}
    inherited = {slot for base in cls.__mro__[1:] for slot in base.__dict__.get("__slots__", ())}
    names = (*annotations, "__weakref__") if weakref_slot else annotations
    members["__slots__"] = tuple(name for name in names if name not in inherited)
    copy = type(cls)(cls.__name__, cls.__bases__, members)
    copy.__qualname__ = cls.__qualname__
    return copy


def _make_init(cls: type[Any], model: type[Any], *, frozen: bool) -> Callable[..., None]:
    """Compile `__init__`. The library compiles three methods for a frozen class."""
    scope: dict[str, Any] = {"_set": object.__setattr__, "_MISSING": dataclasses.MISSING}
    parameters: dict[bool, list[str]] = {False: ["self"], True: []}
    lines: list[str] = []
    for field in dataclasses.fields(model):
        name = parameter = value = field.name
        if field.default is not dataclasses.MISSING:
            scope[f"_default_{name}"] = field.default
            parameter = f"{name}=_default_{name}"
        elif field.default_factory is not dataclasses.MISSING:
            scope[f"_make_{name}"] = field.default_factory
            parameter = f"{name}=_MISSING"
            value = f"_make_{name}() if {name} is _MISSING else {name}"
        parameters[field.kw_only is True].append(parameter)
        lines.append(f"_set(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    keywords = ["*", *parameters[True]] if parameters[True] else []
    signature = ", ".join((*parameters[False], *keywords))
    exec(f"def __init__({signature}):\n " + "\n ".join(lines or ["pass"]), scope)
    scope["__init__"].__qualname__ = f"{cls.__qualname__}.__init__"
    return scope["__init__"]


def _set_all(cls: type[Any], members: dict[str, Any]) -> None:
    for name, member in members.items():
        setattr(cls, name, member)


def _shared_methods(
    cls: type[Any], fields: Sequence[dataclasses.Field[Any]], *, frozen: bool, eq: bool
) -> dict[str, Any]:
    """The methods that need no code of their own for each class, unless the class has them."""
    shown = tuple(field.name for field in fields if field.repr)
    names = frozenset(field.name for field in fields)
    values_of = _getter([field.name for field in fields if field.compare])

    def __repr__(self: object) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
        return f"{type(self).__qualname__}({values})"

    def __eq__(self: object, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return values_of(self) == values_of(other)

    def __hash__(self: object) -> int:
        return hash(values_of(self))

    def __setattr__(self: object, name: str, value: object) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: object, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    methods: dict[str, Any] = {"__repr__": __repr__}
    if eq:
        methods |= {"__eq__": __eq__, "__hash__": __hash__ if frozen else None}
    if frozen:
        methods |= {"__setattr__": __setattr__, "__delattr__": __delattr__}
    return {name: method for name, method in methods.items() if name not in cls.__dict__}


def _getter(names: Sequence[str]) -> Callable[[object], object]:
    return attrgetter(*names) if names else lambda _instance: ()


def _get_state(self: Any) -> list[object]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: Sequence[object]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
