"""`nacre doctor`: what it tells of a sound sandbox, a weak one and a broken one."""

import json
import os
import shutil
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

import nacre
from nacre.cli.main import main
from nacre.config import default_cache_directory
from nacre.gateway.web import ASSETS, find_missing_files
from nacre.sandbox.hardening import HardeningReport, Measure
from nacre.sandbox.image import WasmError
from nacre.sandbox.pool import Launcher
from nacre.sandbox.sandbox import Sandbox, SandboxReport
from tests.cli.agent_setup import configure_agents
from tests.cli.nacre_process import run_nacre
from tests.cli.surroundings import Surroundings, small_server
from tests.compiled_modules import compiled_module


def test_sound_sandbox_is_ok(tmp_path: Path) -> None:
    environment = {"XDG_CONFIG_HOME": str(tmp_path)}
    done = run_nacre("doctor", environment=environment, python=sys.executable)

    lines = done.stdout.splitlines()
    names = [line.split("  ")[0] for line in lines if line and not line.startswith(" ")]
    assert names == [
        "nacre", "python", "platform", "wasmtime", "module cache", "engine", "compiled module",
        "worker", "hardening", "javascript cell", "typescript cell", "configuration", "database",
        "disk", "web app", "ok: programs run with all protections.",
    ]  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_json_holds_the_same_facts() -> None:
    done = run_nacre("doctor", "--json")

    health = json.loads(done.stdout)
    assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 1)
    assert (health["status"], health["warnings"], health["problems"]) == ("ok", [], [])
    assert health["version"] == nacre.__version__
    assert Path(health["wasmtimeLibrary"]).is_file()
    assert len(health["workers"]) == 1
    assert 0 < health["workerStartMs"] < health["firstResultMs"]
    assert {measure["applied"] for measure in health["hardening"]} == {True}
    assert [(cell["language"], cell["problem"]) for cell in health["cells"]] == [
        ("javascript", ""),
        ("typescript", ""),
    ]


def test_compiled_module_is_built_once_into_the_named_directory(
    surroundings: Surroundings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def copy(launcher: Launcher, _library: Path, output: Path) -> None:
        shutil.copy(compiled_module(launcher.image.kind), output)

    # To compile both images takes five seconds. Tests of the sandbox do it.
    monkeypatch.setattr(Launcher, "_compile", copy)
    monkeypatch.setenv("NACRE_CACHE_DIR", str(tmp_path / "modules"))

    first, second = (json.loads(surroundings.nacre("doctor", "--json")[1]) for _ in range(2))

    assert (first["moduleOrigin"], second["moduleOrigin"]) == ("built", "cache")
    assert second["cacheDirectory"] == str(tmp_path / "modules")


def test_directory_that_cannot_be_used_is_a_warning(tmp_path: Path) -> None:
    place = tmp_path / "open to all"
    place.mkdir()
    os.chmod(place, 0o777)

    done = run_nacre("doctor", environment={"NACRE_CACHE_DIR": str(place)})

    *_, warning, verdict = done.stdout.splitlines()
    assert warning.startswith("warning: compiled modules are stored in ")
    assert verdict == "usable: programs run with all protections; see the warnings above."
    assert (done.returncode, done.stderr) == (0, "")


def test_missing_measure_is_a_warning_with_advice(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    check = Sandbox.check

    async def check_without_landlock(self: Sandbox) -> SandboxReport:
        report = await check(self)
        missing = Measure(name="landlock", applied=False, detail="not in this kernel")
        return replace(report, hardening=HardeningReport(measures=(missing,)))

    monkeypatch.setattr(Sandbox, "check", check_without_landlock)

    status = main(["doctor"])

    *_, warning, verdict = capsys.readouterr().out.splitlines()
    assert status == 0
    assert warning == (
        "warning: landlock is not active (not in this kernel); use Linux 5.13 or newer with "
        "`landlock` in its list of security modules"
    )
    assert verdict == "usable: programs run, but some protections are missing."


def test_sandbox_that_does_not_start_is_broken(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_library() -> Path:
        raise WasmError("the wasmtime package is not installed; reinstall nacre")

    monkeypatch.setattr("nacre.sandbox.pool.library_path", no_library)

    status = main(["doctor"])

    out, err = capsys.readouterr()
    *_, problem, verdict = out.splitlines()
    assert (status, err) == (1, "")
    assert problem == "problem: the wasmtime package is not installed; reinstall nacre"
    assert verdict == "broken: programs cannot run on this machine."


def test_exec_says_the_same_of_a_sandbox_that_does_not_start(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_library() -> Path:
        raise WasmError("the wasmtime package is not installed; reinstall nacre")

    monkeypatch.setattr("nacre.sandbox.pool.library_path", no_library)

    status = main(["exec", "-e", "return 1"])

    assert status == 1
    assert capsys.readouterr() == (
        "",
        "failed: the wasmtime package is not installed; reinstall nacre\n"
        "  reason runtime_unavailable, code runtime_unavailable\n",
    )


_CACHE = default_cache_directory()


@pytest.fixture
def compiled(here: Surroundings, monkeypatch: pytest.MonkeyPatch) -> Surroundings:
    """Another home, with the modules that are compiled already."""
    monkeypatch.setenv("NACRE_CACHE_DIR", str(_CACHE))
    return here


def checks_in(out: str) -> dict[str, tuple[str, str]]:
    """The status and the detail of each check, by name."""
    return {it["name"]: (it["status"], it["detail"]) for it in json.loads(out)["checks"]}


def test_the_configuration_and_all_that_it_names_is_checked(compiled: Surroundings) -> None:
    local = {"baseUrl": "http://127.0.0.1:1/v1", "api": "openai-completions"}
    configure_agents(
        compiled,
        agents={
            "a": {"model": "local/x"},
            "b": {"model": "openai/gpt-6"},
            "c": {"model": "anthropic/claude"},
        },
        models={"providers": {"local": local, "anthropic": {"apiKey": "sesame"}}},
        mcp={
            "servers": {
                "small": small_server("one", "two"),
                "broken": {"command": "no-such-command"},
                "off": {"command": "x", "disabled": True},
            }
        },
    )
    compiled.nacre("sessions", "list")

    status, out, _ = compiled.nacre("doctor", "--json")

    checks = checks_in(out)
    assert (status, json.loads(out)["status"]) == (0, "degraded")
    assert checks["configuration"][0] == checks["disk"][0] == "ok"
    assert checks["key of local"] == ("ok", "none, and none is needed")
    assert checks["key of anthropic"] == ("ok", "present")
    assert checks["key of openai"][0] == "warning"
    assert "set OPENAI_API_KEY" in checks["key of openai"][1]
    assert f"{compiled.home / 'nacre.db'}, opened in " in checks["database"][1]
    assert checks["server small"][1].startswith("2 tools after ")
    assert checks["server broken"][0] == "warning"
    assert "no-such-command" in checks["server broken"][1]
    assert checks["server off"] == ("ok", "disabled")
    assert "sesame" not in out


def test_missing_files_of_the_web_app_are_a_warning(
    compiled: Surroundings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(ASSETS, tmp_path / "assets")
    manifest = json.loads((tmp_path / "assets" / "manifest.json").read_text("utf-8"))
    lost = next(iter(manifest["files"]))
    (tmp_path / "assets" / lost).unlink()

    damaged = partial(find_missing_files, tmp_path / "assets")
    monkeypatch.setattr("nacre.gateway.web.find_missing_files", damaged)
    status, out, _ = compiled.nacre("doctor", "--json")

    assert (status, json.loads(out)["status"]) == (0, "degraded")
    assert checks_in(out)["web app"][0] == "warning"
    assert f"1 file missing, such as {lost}" in checks_in(out)["web app"][1]


def test_problems_outside_the_sandbox_are_not_blamed_on_it(compiled: Surroundings) -> None:
    compiled.config.write_text(
        "{gateway: {port: -1}, agents: {a: {model: 'openai/gpt-6'}},"
        f" storage: {{url: 'sqlite:///{compiled.project}'}}}}",
        encoding="utf-8",
    )

    status, out, _ = compiled.nacre("doctor")

    *_, port, key, database, verdict = out.splitlines()
    assert status == 1
    assert port.startswith("problem: configuration: `gateway.port` is -1; allowed: ")
    assert port.endswith(f"; change it in {compiled.config}")
    assert key.startswith("problem: key of openai: ")
    assert database.startswith("problem: database: ")
    assert verdict == "broken: programs run, but agents do not; see the problems above."


def test_a_file_that_cannot_be_read_is_a_problem(compiled: Surroundings) -> None:
    compiled.config.write_text("{", encoding="utf-8")
    status, out, _ = compiled.nacre("doctor", "--json")
    assert (status, checks_in(out)["configuration"][0]) == (1, "problem")
