"""The examples run as they stand, and print what they are meant to show."""

import re
import subprocess
from pathlib import Path
from typing import cast

import pytest
import yaml

from examples.own_tools import PROGRAM
from nacre.config.json5 import parse_json5
from nacre.config.system import system_config_from
from tests.cli.nacre_process import PATIENCE_SECONDS
from tests.forked_python import FORKED_PYTHON

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
NOT_RUN_ALONE = {"__init__", "scripted_server"}

AGENT_LOOP = """\
exec: waiting
wait: completed
Done: reminded Ada of 162.75 euros; reminded Edsger of 17.00 euros.
"""
PRINTED = {
    "anthropic_loop": AGENT_LOOP,
    "openai_loop": AGENT_LOOP,
    "approval": """\
suspended; openclaw:core:send_reminder awaits approval: True
asked about send_reminder with {'customer': 7, 'amount': 162.75}: it writes to a customer
asked about send_reminder with {'customer': 9, 'amount': 17}: it writes to a customer
['reminded Ada of 160.00 euros', \
'approval_denied: the approval was denied: 17 euros are not worth a letter']
""",
    "fan_out": """\
{'London': 162.75, 'New York': 80, 'Eindhoven': 17}
4 calls in one program, 3 of them at once
""",
    "namespace": """\
Ada owes 120.5 EUR
behind it: openclaw:shop:shop_orders, openclaw:shop:shop_customer
""",
    "own_tools": f"""\
These tools are for programs. Try, in this directory:

  nacre exec --tools examples.own_tools:TOOLS -e '{PROGRAM}'

openclaw:core:list_orders: List the orders of the shop.
openclaw:core:get_customer: Look up a customer by number.
openclaw:core:send_reminder: Remind a customer of what is still to be paid.
""",
}


def run_in_repository(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [FORKED_PYTHON, "-m", *arguments],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_prints_what_it_shows(name: str) -> None:
    done = run_in_repository(f"examples.{name}")
    assert (done.stdout, done.stderr, done.returncode) == (PRINTED[name], "", 0)


def test_every_example_is_run() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} - NOT_RUN_ALONE == set(PRINTED)


def test_own_tools_are_found_by_the_command_line() -> None:
    done = run_in_repository(
        "nacre.cli.main", "exec", "--tools", "examples.own_tools:TOOLS", "-e", PROGRAM
    )
    shown = re.sub(r"\s+", " ", done.stdout).strip()
    assert (shown, done.stderr) == ('{ "id": 7, "name": "Ada", "city": "London" }', "")


def test_the_first_cell_runs() -> None:
    done = run_in_repository("nacre.cli.main", "exec", "examples/first_cell.js")
    assert done.returncode == 0
    assert '"best": "Ada"' in done.stdout


DEPLOY = EXAMPLES / "deploy"


def test_the_deployment_examples_set_every_variable_of_their_configuration(
    tmp_path: Path,
) -> None:
    text = (DEPLOY / "nacre.json5").read_text(encoding="utf-8")
    used = set(re.findall(r"\$\{(\w+)\}", text))
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]
    assert used <= set(services["gateway"]["environment"])
    unit = (DEPLOY / "nacre.service").read_text(encoding="utf-8")
    # These two are secrets, or contain one.
    in_file = {"OPENAI_API_KEY", "NACRE_STORAGE_URL"}
    assert used == set(re.findall(r"^Environment=(NACRE_\w+)=", unit, re.MULTILINE)) | in_file

    token = tmp_path / "token"
    token.write_text("0123456789abcdef", encoding="utf-8")
    token.chmod(0o600)
    given = dict.fromkeys(used, str(tmp_path / "keys")) | {
        "NACRE_STORAGE_URL": "postgresql://nacre@database/nacre",
        "NACRE_TOKEN_FILE": str(token),
    }
    document = cast("dict[str, object]", parse_json5(text, path="nacre.json5"))
    config = system_config_from(document, environment=given, folder=DEPLOY)
    assert config.storage.url == given["NACRE_STORAGE_URL"]
    assert str(config.snapshot_keys.file) == given["NACRE_SNAPSHOT_KEYS"]


def test_the_compose_file_names_files_that_exist() -> None:
    whole = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    assert [each["file"] for each in whole["configs"].values()] == ["nacre.json5", "nginx.conf"]
    assert all((DEPLOY / each["file"]).is_file() for each in whole["configs"].values())
    used = {name for service in whole["services"].values() for name in service.get("secrets", ())}
    assert used == set(whole["secrets"])
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    assert [each["file"] for each in whole["secrets"].values() if each["file"] not in page] == []
