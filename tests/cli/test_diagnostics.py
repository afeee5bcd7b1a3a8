"""`nacre diagnostics export`: what a support bundle has, and what it never has."""

import json
import stat
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.cli.agent_setup import configure_agents
from tests.cli.surroundings import Surroundings
from tests.contract.requirements import requirement

SECRET = "sk-live-1234567890abcdefghijklmnopqrst"
PHRASE = "open\\sesame"


@pytest.fixture
def here(surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch) -> Surroundings:
    for variable in ("XDG_STATE_HOME", "XDG_DATA_HOME", "NACRE_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    configure_agents(
        surroundings,
        gateway={"port": 1},
        mcp={"servers": {"off": {"url": f"http://x/?key={SECRET}", "enabled": False}}},
    )
    return surroundings


def read_bundle(path: Path) -> dict[str, str]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


@requirement("codex:diagnostics-bundle")
def test_a_bundle_has_what_helps_and_no_secret(here: Surroundings) -> None:
    _, out, _ = here.nacre("run", "--json", "--session", "work", f"hello, my key is {SECRET}")
    run_id: str = json.loads(out.splitlines()[0])["runId"]
    status, out, _ = here.nacre("diagnostics", "export", "--json", "--note", f"it hangs {SECRET}")
    bundle: dict[str, Any] = json.loads(out)
    path = Path(bundle["path"])
    assert status == 0
    assert path.parent == here.home / ".local" / "state" / "nacre" / "diagnostics"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    files = read_bundle(path)
    assert set(files) == {
        "manifest.json",
        "config.json",
        "doctor.json",
        f"trajectories/{run_id}.jsonl",
    }
    assert not any(SECRET in text for text in files.values())
    manifest = json.loads(files["manifest.json"])
    assert manifest["note"].startswith("it hangs")
    assert {"nacre", "python", "platform", "packages"} == set(manifest["versions"])
    # No gateway is running, and the bundle says so.
    assert "metrics.txt: no metrics from a gateway" in str(bundle["problems"])
    assert "run.started" in files[f"trajectories/{run_id}.jsonl"]
    assert json.loads(files["doctor.json"])["version"]


def test_a_bundle_can_be_written_with_a_broken_configuration(
    here: Surroundings, tmp_path: Path
) -> None:
    here.config.write_text(
        json.dumps({"agents": {"defaults": {"model": 7}}, "apiKey": SECRET}), encoding="utf-8"
    )
    out_folder = tmp_path / "bundles"
    arguments = ("diagnostics", "export", "--no-doctor", "--out", str(out_folder))
    status, out, err = here.nacre(*arguments)
    assert status == 0
    assert "the configuration is invalid" in err
    (path,) = out_folder.iterdir()
    assert out.strip() == str(path)
    assert SECRET not in str(read_bundle(path))


def test_an_unknown_session_writes_nothing(here: Surroundings, tmp_path: Path) -> None:
    here.nacre("run", "--json", "--session", "work", "hello")
    arguments = ("diagnostics", "export", "--no-doctor", "--session", "wrok")
    status, _, err = here.nacre(*arguments)
    assert status == 2
    assert "there is no session 'wrok'" in err
    assert not (here.home / ".local" / "state" / "nacre" / "diagnostics").exists()


@requirement("codex:diagnostics-bundle")
def test_values_of_servers_are_hidden_wherever_they_are(
    here: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIN", "swordfish")
    env = {"PHRASE": PHRASE, "PIN": "${PIN}", "LEVEL": "debug"}
    remote = {"url": "http://x/", "headers": {"X-Team": "Bearer coral-reef"}, "enabled": False}
    servers = {"local": {"command": "no-such-command", "env": env}, "remote": remote}
    configure_agents(here, gateway={"port": 1}, mcp={"servers": servers})
    said = f"I say {PHRASE}, swordfish and coral-reef in debug mode"
    here.nacre("run", "--session", "work", said)
    _, out, _ = here.nacre("diagnostics", "export", "--json", "--no-doctor", "--note", said)
    files = read_bundle(Path(json.loads(out)["path"]))
    assert json.loads(files["manifest.json"])["note"] == "I say ***, *** and *** in debug mode"
    for secret in ("sesame", "swordfish", "coral"):
        assert [name for name, text in files.items() if secret in text] == [], files
    local = json.loads(files["config.json"])["mcp"]["servers"]["local"]
    assert local["env"] == {"PHRASE": "***", "PIN": "${PIN}", "LEVEL": "***"}
