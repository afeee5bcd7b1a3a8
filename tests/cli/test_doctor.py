"""`nacre doctor`: what it tells of a sound sandbox, a weak one and a broken one."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

import nacre
from nacre.cli.main import main
from nacre.sandbox.hardening import HardeningReport, Measure
from nacre.sandbox.sandbox import Sandbox, SandboxReport
from nacre.sandbox.worker.wasm_runtime import WasmError
from tests.cli.nacre_process import run_nacre


def test_sound_sandbox_is_ok() -> None:
    done = run_nacre("doctor")

    lines = done.stdout.splitlines()
    names = [line.split("  ")[0] for line in lines if line and not line.startswith(" ")]
    assert names == [
        "nacre", "python", "platform", "wasmtime", "module cache", "engine", "compiled module",
        "worker", "hardening", "javascript cell", "typescript cell",
        "ok: programs run with all protections.",
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


def test_compiled_module_is_built_once_into_the_named_directory(tmp_path: Path) -> None:
    environment = {"NACRE_CACHE_DIR": str(tmp_path / "modules")}

    first = json.loads(run_nacre("doctor", "--json", environment=environment).stdout)
    second = json.loads(run_nacre("doctor", "--json", environment=environment).stdout)

    assert (first["moduleOrigin"], second["moduleOrigin"]) == ("built", "cache")
    assert second["cacheDirectory"] == environment["NACRE_CACHE_DIR"]


def test_directory_that_cannot_be_used_is_a_warning(tmp_path: Path) -> None:
    place = tmp_path / "open to all"
    place.mkdir()
    os.chmod(place, 0o777)

    done = run_nacre("doctor", environment={"NACRE_CACHE_DIR": str(place)})

    *_, warning, verdict = done.stdout.splitlines()
    assert warning.startswith("warning: compiled modules are stored in ")
    assert verdict == "usable: programs run, but some protections are missing."
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
