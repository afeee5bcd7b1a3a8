"""Every statement of the contract has a test, and every test names one that exists."""

import ast
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.contract.codex_statements import (
    HOOK_LAYERS,
    KNOWN_BUGS,
    NOT_SUPPORTED,
    SENTENCES,
    SUPPORTED,
)
from tests.contract.requirements import REQUIREMENTS

TESTS = Path(__file__).parents[1]


def named_in(source: str) -> set[str]:
    """The ids in the `@requirement(...)` decorators of test functions."""
    return {
        argument.value
        for function in ast.walk(ast.parse(source))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        and function.name.startswith("test_")
        for decorator in function.decorator_list
        if isinstance(decorator, ast.Call)
        and isinstance(decorator.func, ast.Name)
        and decorator.func.id == "requirement"
        for argument in decorator.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    }


def test_every_requirement_has_a_test() -> None:
    named = set[str]()
    for path in TESTS.rglob("test_*.py"):
        named |= named_in(path.read_text(encoding="utf-8"))
    assert set(REQUIREMENTS) - named == set()
    assert named - set(REQUIREMENTS) == set()


def test_only_decorated_tests_count() -> None:
    source = '@requirement("a", "b")\ndef test_x(): ...\n\n@requirement("c")\ndef helper(): ...'
    assert named_in(source) == {"a", "b"}


@pytest.mark.parametrize(
    "statements", [SUPPORTED, NOT_SUPPORTED, HOOK_LAYERS, SENTENCES, KNOWN_BUGS]
)
def test_every_statement_about_codex_names_requirements(
    statements: Mapping[str, tuple[str, ...]],
) -> None:
    named = {name for ids in statements.values() for name in ids}
    assert named - set(REQUIREMENTS) == set()
    assert all(statements.values())


def test_the_tables_about_codex_are_complete() -> None:
    assert [len(table) for table in (SUPPORTED, NOT_SUPPORTED, HOOK_LAYERS)] == [11, 6, 3]
