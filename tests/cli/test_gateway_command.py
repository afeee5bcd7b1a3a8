"""`nacre gateway` before it serves."""

import subprocess
import sys
from pathlib import Path

from tests.cli.nacre_process import PATIENCE_SECONDS

# As where these are not installed: importing them fails, and nothing finds them.
WITHOUT = """
import sys
sys.modules.update(dict.fromkeys(sys.argv[1].split(",")))
from nacre.cli.main import main
sys.exit(main(["gateway", "--port", "0"]))
"""


def gateway_without(modules: str, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT, modules],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        cwd=home,
        env={"HOME": str(home)},
        check=False,
    )


def test_without_the_parts_of_the_gateway_one_line_says_what_to_install(tmp_path: Path) -> None:
    ended = gateway_without("fastapi,sqlalchemy", tmp_path)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == (
        "nacre: the gateway cannot run: fastapi, sqlalchemy are not installed; "
        "run: pip install 'nacre-ai[gateway]'\n"
    )
