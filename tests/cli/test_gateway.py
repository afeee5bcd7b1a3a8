"""`nacre gateway`: its start, and the message when it is ready."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.request import urlopen

import pytest

from nacre.cli.gateway import commands_to_try, welcome_json, welcome_text
from nacre.config.system import system_config_from
from nacre.gateway.server import Served
from tests.cli.nacre_process import PATIENCE_SECONDS, pipe_of, start_nacre
from tests.cli.surroundings import Surroundings

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
        "nacre: the gateway needs packages that are not installed: fastapi, sqlalchemy; "
        "run: pip install 'nacre-ai[gateway]'\n"
    )


TOKEN = "0123456789abcdef-secret"


def served(
    tmp_path: Path,
    *,
    environment: Mapping[str, str] | None = None,
    token_file: Path | None = None,
    **document: object,
) -> Served:
    config = system_config_from(document, environment=environment or {}, folder=tmp_path)
    return Served(
        url="http://127.0.0.1:1",
        config=config,
        token_file=token_file,
        database="the database x",
        app_url="http://127.0.0.1:1/app/#code=x",
    )


def test_the_first_line_is_the_link_to_the_web_app(tmp_path: Path) -> None:
    gateway = served(tmp_path)
    assert welcome_text(gateway, "").startswith("open http://127.0.0.1:1/app/#code=x\n")
    assert welcome_json(gateway)["appUrl"] == "http://127.0.0.1:1/app/#code=x"
    # The link gives access, so it is not in tracebacks.
    assert "code=x" not in repr(gateway)


def test_a_generated_token_is_read_from_its_file(tmp_path: Path) -> None:
    gateway = served(tmp_path, token_file=tmp_path / "a b" / "token")
    assert commands_to_try(gateway)[0] == f"TOKEN=\"$(cat '{tmp_path}/a b/token')\""
    assert f"  token      {tmp_path}/a b/token" in welcome_text(gateway, "")


def test_the_token_of_the_environment_is_named_by_its_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NACRE_GATEWAY_TOKEN", TOKEN)
    gateway = served(tmp_path, environment={"NACRE_GATEWAY_TOKEN": TOKEN})
    assert commands_to_try(gateway)[0] == 'TOKEN="$NACRE_GATEWAY_TOKEN"'


def test_a_configured_token_is_not_shown(tmp_path: Path) -> None:
    gateway = served(tmp_path, gateway={"auth": {"token": TOKEN}})
    shown = welcome_text(gateway, "nacre.json5") + json.dumps(welcome_json(gateway)) + repr(gateway)
    assert TOKEN not in shown


def test_without_authentication_no_token_is_asked_for(tmp_path: Path) -> None:
    gateway = served(tmp_path, gateway={"auth": {"mode": "none"}})
    assert not any("TOKEN" in line for line in commands_to_try(gateway))
    assert "not required" in welcome_text(gateway, "")


def test_the_demonstration_is_called_one(tmp_path: Path) -> None:
    assert "demo, not a real model" in welcome_text(served(tmp_path), "")
    keys = {"OPENAI_API_KEY": "x"}
    real = served(tmp_path, environment=keys, agents={"defaults": {"model": "openai/gpt-6"}})
    assert "demo, not a real model" not in welcome_text(real, "nacre.json5")


def test_the_surface_is_named_and_how_to_switch_code_mode_on(tmp_path: Path) -> None:
    code_mode = welcome_text(served(tmp_path, tools={"codeMode": True}), "nacre.json5")
    searching = welcome_text(served(tmp_path, tools={"toolSearch": True}), "nacre.json5")
    direct = welcome_text(served(tmp_path), "a b.json5")
    assert "  surface    code mode" in code_mode
    assert "  surface    tool search" in searching
    assert "nacre config set --config 'a b.json5' tools.codeMode.enabled true" in direct
    assert "config set" not in code_mode


def test_all_interfaces_are_not_passed_over(tmp_path: Path) -> None:
    everywhere = served(tmp_path, gateway={"host": "0.0.0.0"})
    assert "all other addresses of this machine (0.0.0.0)" in welcome_text(everywhere, "")
    assert "all other addresses" not in welcome_text(served(tmp_path), "")


def test_logs_are_lines_of_json_on_request_and_a_link_is_made(here: Surroundings) -> None:
    options = ("--port", "0", "--json", "--access-log", "--log-format", "json")
    with start_nacre("gateway", *options) as process:
        facts = json.loads(pipe_of(process.stdout).readline())
        status, link, _ = here.nacre("link", "--url", facts["url"])
        with urlopen(f"{facts['url']}/healthz"):
            lines = map(json.loads, pipe_of(process.stderr))
            line = next(line for line in lines if "/healthz" in line["message"])
    assert line.keys() == {"time", "level", "logger", "message"}
    assert (status, link.startswith(f"{facts['url']}/app/#code=")) == (0, True)
    assert link.strip() != facts["appUrl"]
    assert line["level"] == "info"


def test_an_unknown_log_level_is_bad_usage(here: Surroundings) -> None:
    status, _, err = here.nacre("gateway", "--log-level", "loud")
    assert (status, err) == (
        2,
        "nacre: --log-level is 'loud'; allowed: debug, info, warning, error\n",
    )
