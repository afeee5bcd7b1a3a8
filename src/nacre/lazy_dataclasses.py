"""Dataclasses whose methods are generated when they are first used.

`dataclasses.dataclass` compiles up to six functions for each class. In a process that starts to run
one program, that was a third of all imports, for classes of which most are never instantiated. The
others have few instances: `__init__` is compiled when there are more.
"""

from __future__ import annotations

import dataclasses
import inspect
import threading
from operator import attrgetter
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    NamedTuple,
    TypeVar,
    cast,
    dataclass_transform,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_Class = TypeVar("_Class")
_Instance = TypeVar("_Instance")

_FIELDS: Final = "__dataclass_fields__"
# The names of the fields of a class whose `__init__` takes all of them.
_NAMES: Final = "_nacre_field_names"
# In this order: until the last is replaced, other threads wait for the one that generates.
_GENERATED: Final = ("__dataclass_params__", "__match_args__", _FIELDS, "__init__")
# To compile `__init__` takes as long as some 50 instances without it.
_MAX_SLOW_INSTANCES: Final = 16
_NOT_FIELDS: Final = ("ClassVar", "InitVar", "KW_ONLY")
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
    """Like `dataclasses.dataclass`, but the first instances, or the first use of the fields,
    generate the methods. A mistake in the fields is an error then, not at the definition."""

    def decorate(cls: type[_Class]) -> type[_Class]:
        annotations = inspect.get_annotations(cls)
        defaults = {name: cls.__dict__[name] for name in annotations if name in cls.__dict__}
        if slots:
            cls = _add_slots(cls, annotations, weakref_slot=weakref_slot)
            if frozen:
                _set_all(cls, {"__getstate__": _get_state, "__setstate__": _set_state})
        lazy = _LazyFields(cls, annotations, defaults, kw_only=kw_only, frozen=frozen, eq=eq)

        def prepare_and_init(self: object, *args: object, **kwargs: object) -> None:
            with _generating:
                if vars(cls)["__init__"] is prepare_and_init:
                    lazy.prepare()
            vars(cls)["__init__"](self, *args, **kwargs)

        _set_all(cls, {_FIELDS: lazy, "__init__": prepare_and_init})
        return cls

    return decorate


def replace(instance: _Instance, /, **changes: Any) -> _Instance:
    """Like `dataclasses.replace`, but it does not generate the methods of the class."""
    cls = type(instance)
    names = cls.__dict__.get(_NAMES)
    if names is None:
        return dataclasses.replace(cast("Any", instance), **changes)
    values = {name: getattr(instance, name) for name in names}
    values.update(changes)
    return cls(**values)


class _LazyFields:
    """The fields of a class until its methods are generated."""

    def __init__(
        self,
        cls: type[Any],
        annotations: Mapping[str, object],
        defaults: Mapping[str, Any],
        *,
        kw_only: bool,
        frozen: bool,
        eq: bool,
    ) -> None:
        self.annotations = annotations
        self.defaults = defaults
        self.kw_only = kw_only
        self._class = cls
        self.frozen = frozen
        self._eq = eq

    def __get__(self, instance: object, owner: type[Any]) -> dict[str, dataclasses.Field[Any]]:
        self.generate()
        return getattr(owner, _FIELDS)

    def prepare(self) -> None:
        """Add the methods without generating code for the class, if its fields are simple."""
        cls, fields = self._class, _simple_fields(self._class, frozen=self.frozen)
        if fields is None:
            self.generate()
            return
        self._add_shared_methods(fields)
        setattr(cls, _NAMES, tuple(field.name for field in fields))
        cls.__match_args__ = tuple(field.name for field in fields if not field.kw_only)
        cls.__init__ = _make_slow_init(cls, fields, self.generate, frozen=self.frozen)

    def generate(self) -> None:
        """Add what `dataclasses` generates."""
        cls, frozen = self._class, self.frozen
        # Without a text, `dataclasses` would write the signature of each class.
        members = {
            "__annotations__": self.annotations, "__module__": cls.__module__, "__doc__": "-",
            **self.defaults
        }  # fmt: skip
        with _generating:
            if not isinstance(cls.__dict__[_FIELDS], _LazyFields):
                return
            model: type[Any] = type(cls.__name__, cls.__bases__, members)
            # For a frozen class it would compile methods that are shared here. A class with a
            # frozen base has to be frozen itself.
            dataclasses.dataclass(
                init=False, repr=False, eq=False, kw_only=self.kw_only,
                frozen=frozen and cls.__base__ is not object,
            )(model)  # fmt: skip
            model.__dataclass_params__.frozen = frozen
            model.__init__ = _make_init(cls, model, frozen=frozen)
            self._add_shared_methods(dataclasses.fields(model))
            if all(field.init for field in dataclasses.fields(model)):
                setattr(cls, _NAMES, tuple(field.name for field in dataclasses.fields(model)))
            _set_all(cls, {name: model.__dict__[name] for name in _GENERATED})

    def _add_shared_methods(
        self, fields: Sequence[dataclasses.Field[Any]] | Sequence[_SimpleField]
    ) -> None:
        cls = self._class
        _set_all(cls, _shared_methods(cls, fields, frozen=self.frozen, eq=self._eq))


class _SimpleField(NamedTuple):
    """What an instance needs of a field."""

    name: str
    default: Any = dataclasses.MISSING
    default_factory: Any = dataclasses.MISSING
    kw_only: bool = False
    repr: bool = True
    compare: bool = True


def _simple_fields(cls: type[Any], *, frozen: bool) -> list[_SimpleField] | None:
    """The fields of a class and its bases. None if only `dataclasses` can tell, or has to refuse
    them."""
    found: dict[str, _SimpleField | None] = {}
    for base in reversed(cls.__mro__):
        own = base.__dict__.get(_FIELDS)
        if isinstance(own, _LazyFields):
            if own.frozen != frozen or not all(map(_is_field, own.annotations.values())):
                return None
            for name in own.annotations:
                default = own.defaults.get(name, dataclasses.MISSING)
                found[name] = _simple_field(name, default, kw_only=own.kw_only)
        elif own is not None:
            if cast("Any", base).__dataclass_params__.frozen != frozen:
                return None
            for field in dataclasses.fields(base):
                found[field.name] = _simple_field(field.name, field, kw_only=False)
    fields = [field for field in found.values() if field is not None]
    if len(fields) < len(found):
        return None
    has_default = [
        each.default is not dataclasses.MISSING or each.default_factory is not dataclasses.MISSING
        for each in fields
        if not each.kw_only
    ]
    return fields if has_default == sorted(has_default) else None


def _is_field(annotation: object) -> bool:
    if isinstance(annotation, str):
        return not any(map(annotation.__contains__, _NOT_FIELDS))
    origin = getattr(annotation, "__origin__", annotation)
    is_other = origin in (ClassVar, dataclasses.InitVar, dataclasses.KW_ONLY)
    return not is_other and not isinstance(annotation, dataclasses.InitVar)


def _simple_field(name: str, default: Any, *, kw_only: bool) -> _SimpleField | None:
    factory, is_shown, is_compared = dataclasses.MISSING, True, True
    if isinstance(default, dataclasses.Field):
        field = cast("dataclasses.Field[Any]", default)
        if not field.init or field.hash is not None:
            return None
        default, factory, is_shown, is_compared = (
            field.default, field.default_factory, field.repr, field.compare
        )  # fmt: skip
        if isinstance(field.kw_only, bool):
            kw_only = field.kw_only
    # A mutable default, which is not allowed.
    if default.__class__.__hash__ is None:
        return None
    return _SimpleField(name, default, factory, kw_only, is_shown, is_compared)


def _make_slow_init(
    cls: type[Any], fields: Sequence[_SimpleField], generate: Callable[[], None], *, frozen: bool
) -> Callable[..., None]:
    """An `__init__` that needs no code of its own.

    After a few instances it compiles the other one, and also for wrong arguments, so that their
    error is that of Python.
    """
    positional = [field.name for field in fields if not field.kw_only]
    names = frozenset(field.name for field in fields)
    required = frozenset(
        field.name
        for field in fields
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    )
    steps = [(field.name, field.default, field.default_factory) for field in fields]
    set_attribute = object.__setattr__ if frozen else setattr
    has_post_init = hasattr(cls, "__post_init__")
    count = 0

    def __init__(self: Any, *args: object, **kwargs: object) -> None:
        nonlocal count
        count += 1
        given = dict(zip(positional, args, strict=False)) | kwargs
        is_right = len(given) == len(args) + len(kwargs) and required <= given.keys() <= names
        if count > _MAX_SLOW_INSTANCES or not is_right:
            generate()
            vars(cls)["__init__"](self, *args, **kwargs)
            return
        for name, default, factory in steps:
            if name in given:
                value = given[name]
            else:
                value = default if factory is dataclasses.MISSING else factory()
            set_attribute(self, name, value)
        if has_post_init:
            self.__post_init__()

    return __init__


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
    cls: type[Any],
    fields: Sequence[dataclasses.Field[Any]] | Sequence[_SimpleField],
    *,
    frozen: bool,
    eq: bool,
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
