"""Dataclasses whose methods are generated at the first use behave like those of the library."""

import copy
import dataclasses
import pickle
import threading
import weakref
from dataclasses import field
from typing import ClassVar

import pytest

from nacre.lazy_dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True, slots=True)
class Base:
    """A base class."""

    name: str
    tags: list[str] = field(default_factory=list[str], compare=False, repr=False)
    size: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Derived(Base):
    """Checks its size."""

    size: int = 2
    unit: str = "kB"

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError("size is negative")


@dataclass(kw_only=True)
class Mutable:
    """Can be changed."""

    count: int = 0


@dataclass(frozen=True)
class Positional:
    """Has fields by position."""

    first: int
    second: int = 2


@dataclass(frozen=True, kw_only=True, slots=True, weakref_slot=True, eq=False)
class Identity:
    """Equal only to itself."""

    name: str


def test_fields_of_bases_and_defaults_are_inherited() -> None:
    made = Derived(name="a")
    assert (made.name, made.tags, made.size, made.unit) == ("a", [], 2, "kB")
    assert [each.name for each in dataclasses.fields(Derived)] == ["name", "tags", "size", "unit"]
    assert Derived(name="a").tags is not made.tags


def test_they_are_compared_hashed_and_shown_by_their_fields() -> None:
    assert Base(name="a", tags=["x"]) == Base(name="a")
    assert hash(Base(name="a")) == hash(Base(name="a", tags=["x"]))
    assert Base(name="a") != Base(name="b")
    assert Derived(name="a", size=1) != Base(name="a", size=1)
    assert repr(Base(name="a")) == "Base(name='a', size=1)"
    assert Positional(1) == Positional(1, 2)
    with pytest.raises(TypeError, match="unhashable"):
        hash(Mutable())


def test_frozen_ones_cannot_be_changed_and_others_can() -> None:
    made = Base(name="a")
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.name = "b"  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del made.name  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.other = 1  # pyright: ignore[reportAttributeAccessIssue]
    counter = Mutable()
    counter.count += 1
    assert counter == Mutable(count=1)


def test_slots_leave_no_room_for_other_attributes() -> None:
    assert not hasattr(Derived(name="a"), "__dict__")


def test_without_eq_they_are_compared_by_identity_and_can_have_weak_references() -> None:
    made = Identity(name="a")
    assert made == made
    assert made != Identity(name="a")
    assert {made: 1}[made] == 1
    assert weakref.ref(made)() is made
    with pytest.raises(TypeError, match="weak"):
        weakref.ref(Base(name="a"))


def test_a_frozen_class_of_the_library_can_inherit_from_one() -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Child(Base):
        unit: str

    made = Child(name="a", unit="kB")
    assert (made.name, made.size, made.unit) == ("a", 1, "kB")
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.unit = "MB"  # pyright: ignore[reportAttributeAccessIssue]


def test_the_functions_of_the_library_work() -> None:
    made = Derived(name="a", tags=["x"])
    assert dataclasses.is_dataclass(Derived)
    assert dataclasses.asdict(made) == {"name": "a", "tags": ["x"], "size": 2, "unit": "kB"}
    assert dataclasses.replace(made, size=5) == Derived(name="a", size=5)
    assert copy.deepcopy(made) == made == pickle.loads(pickle.dumps(made))
    with pytest.raises(ValueError, match="negative"):
        dataclasses.replace(made, size=-1)


def test_wrong_arguments_are_errors() -> None:
    with pytest.raises(TypeError, match="name"):
        Base()  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError, match=r"^Positional.__init__\(\) missing 1 required positional"):
        Positional()  # pyright: ignore[reportCallIssue]
    with pytest.raises(TypeError, match="nmae"):
        Base(nmae="a")  # pyright: ignore[reportCallIssue]


def test_a_mistake_in_the_fields_is_an_error_at_the_first_use() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Wrong:
        items: list[int] = []  # noqa: RUF012

    with pytest.raises(ValueError, match="mutable default"):
        Wrong()


def test_the_first_instances_need_no_code_and_later_ones_get_it() -> None:
    @dataclass(frozen=True, kw_only=True, slots=True)
    class Point(Base):
        x: int
        y: list[int] = field(default_factory=list[int])

    points = [Point(name="p", x=number) for number in range(3)]
    assert [point.x for point in points] == [0, 1, 2]
    assert points[0].y is not points[1].y
    assert points[0] != points[1]
    assert points[0] == Point(name="p", x=0)
    # It is the general one, which has no names of fields.
    assert "x" not in Point.__init__.__code__.co_varnames
    more = [Point(name="p", x=number) for number in range(30)]
    assert "x" in Point.__init__.__code__.co_varnames
    assert more[29] == Point(name="p", x=29, tags=["a"])
    assert points[2] == more[2]
    with pytest.raises(dataclasses.FrozenInstanceError):
        points[0].x = 1  # pyright: ignore[reportAttributeAccessIssue]


def test_a_copy_with_changes_needs_no_code_and_can_be_of_any_dataclass() -> None:
    @dataclass(frozen=True, kw_only=True, slots=True)
    class Point(Base):
        x: int

    moved = replace(Point(name="p", x=1, tags=["a"]), x=2)
    assert (moved.name, moved.x, moved.tags) == ("p", 2, ["a"])
    assert "x" not in Point.__init__.__code__.co_varnames
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        replace(moved, z=1)
    assert replace(moved, x=3) == Point(name="p", x=3)

    @dataclasses.dataclass(frozen=True)
    class Other:
        x: int

    assert replace(Other(1), x=2) == Other(2)


def test_class_variables_and_fields_that_no_argument_sets_are_left_to_the_library() -> None:
    @dataclass(frozen=True)
    class Child(Positional):
        kind: ClassVar[str] = "child"
        third: int = 3

    assert repr(Child(1, third=4)) == f"{Child.__qualname__}(first=1, second=2, third=4)"
    assert Child.kind == "child"


def test_fields_match_by_position() -> None:
    match Positional(1):
        case Positional(first, second):
            assert (first, second) == (1, 2)


def test_fields_and_bases_that_the_library_refuses_are_errors() -> None:
    @dataclass(frozen=True)
    class WrongOrder(Positional):
        third: int  # pyright: ignore[reportGeneralTypeIssues]

    @dataclass()  # pyright: ignore[reportGeneralTypeIssues]
    class NotFrozen(Positional):
        third: int = 3

    with pytest.raises(SyntaxError, match="default"):
        WrongOrder(1, 2, 3)
    with pytest.raises(TypeError, match="frozen"):
        NotFrozen(1)


def test_threads_that_use_a_class_at_once_all_get_instances() -> None:
    for _ in range(50):

        @dataclass(frozen=True, kw_only=True, slots=True)
        class Shared:
            number: int

        start = threading.Barrier(4)
        made: list[Shared] = []

        def make(kind: type[Shared] = Shared, made: list[Shared] = made) -> None:
            start.wait()  # noqa: B023
            made.append(kind(number=1))

        threads = [threading.Thread(target=make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert made == [Shared(number=1)] * 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Large:
    """Has fields of all kinds."""

    first: int
    second: list[int] = field(default_factory=list[int])
    third: str = "c"
    fourth: object = None


@dataclass(frozen=True, kw_only=True, slots=True)
class LargeDerived(Large):
    """Has one more, and none that is slow."""

    fifth: int = 5


class Plain(Large):
    """Not a dataclass itself, with a `__dict__`."""


@pytest.mark.parametrize("count", [1, 100])
def test_a_frozen_instance_with_many_fields_has_its_class_and_stays_frozen(count: int) -> None:
    for kind in (Large, LargeDerived, Plain):
        for number in range(count):
            made = kind(first=number, third="d")
            assert type(made) is kind
            assert (made.first, made.second, made.third, made.fourth) == (number, [], "d", None)
            with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign"):
                made.first = 2  # pyright: ignore[reportAttributeAccessIssue]
            with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete"):
                del made.first  # pyright: ignore[reportAttributeAccessIssue]
        assert kind(first=1) == kind(first=1) != kind(first=2)
        assert hash(kind(first=1, second=())) == hash(kind(first=1, second=()))  # pyright: ignore[reportArgumentType]
    assert replace(LargeDerived(first=1), fifth=6) == LargeDerived(first=1, fifth=6)
    assert pickle.loads(pickle.dumps(Large(first=1))) == Large(first=1)


def test_a_generated_class_is_replaced_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    assert dataclasses.fields(LargeDerived)
    made = LargeDerived(first=1)
    monkeypatch.delattr(dataclasses, "replace")
    assert replace(made, fifth=6) == LargeDerived(first=1, fifth=6)
