"""A TypeScript compiler for the tests of one file."""

from collections.abc import Iterator

import pytest

from tests.tools.declarations.typescript_compiler import TypeScriptCompiler


@pytest.fixture(scope="module")
def compiler() -> Iterator[TypeScriptCompiler]:
    with TypeScriptCompiler() as compiler:
        yield compiler
