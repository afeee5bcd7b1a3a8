"""SQLAlchemy is an optional extra that only an open store imports."""

import subprocess
import sys

import pytest


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )


def test_the_package_does_not_import_sqlalchemy() -> None:
    code = "import sys, nacre.storage; print('sqlalchemy' in sys.modules)"
    assert run_python(code).stdout == "False\n"


@pytest.mark.parametrize(
    ("missing", "url", "advice"),
    [
        ("sqlalchemy", "sqlite:///:memory:", "pip install 'nacre-ai[gateway]'"),
        ("asyncpg", "postgresql://ada@reef/db", "pip install 'nacre-ai[gateway,postgres]'"),
    ],
)
def test_a_missing_extra_is_named(missing: str, url: str, advice: str) -> None:
    failed = run_python(
        f"import sys; sys.modules[{missing!r}] = None\n"
        "import anyio; from nacre.storage import open_store\n"
        "async def main():\n"
        f"    async with open_store({url!r}): pass\n"
        "anyio.run(main)"
    )
    assert f"install it with: {advice}" in failed.stderr.splitlines()[-1]
