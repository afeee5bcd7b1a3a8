"""The exception tree: every class has its place, and errors keep their parts on a journey."""

import pickle

import pytest

from nacre import errors
from nacre.errors import ConfigError, HostRequestError, NacreError


def test_the_tree_in_the_docstring_is_the_tree_of_the_classes() -> None:
    # The leading mark says how deep a class stands: `* Root`, then `x`, `+` and `-`.
    marks = {"*": 0, "x": 1, "+": 2, "-": 3}
    lines = (line.split() for line in (errors.__doc__ or "").splitlines())
    drawn = {words[1]: marks[words[0]] for words in lines if words and words[0] in marks}
    classes = (item for item in vars(errors).values() if isinstance(item, type))
    depth_below_exception = {
        item.__name__: len(item.__mro__) - len(NacreError.__mro__)
        for item in classes
        if issubclass(item, Exception)
    }
    assert drawn == depth_below_exception


def test_a_config_error_says_path_and_problem() -> None:
    error = ConfigError("tools.codeMode.timeoutMs", 'is "soon"; allowed: whole numbers')
    assert str(error) == '`tools.codeMode.timeoutMs` is "soon"; allowed: whole numbers'


@pytest.mark.parametrize(
    "error",
    [
        ConfigError("a.b", "is 1"),
        HostRequestError("no", name="ToolError", code="denied", data={"toolId": "a"}),
    ],
)
def test_an_error_with_parts_of_its_own_survives_pickling(error: NacreError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))
