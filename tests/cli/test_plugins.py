"""`nacre plugins`: what people and programs are told about plugins."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.nacre_process import run_nacre
from tests.cli.surroundings import Surroundings
from tests.plugins.plugin_folders import plugin_folder

WEATHER = Path(__file__).parents[2] / "examples" / "weather_plugin" / "src" / "nacre_weather"


@pytest.fixture
def here(surroundings: Surroundings) -> Surroundings:
    return surroundings


def configure(here: Surroundings, *folders: Path, **more: Any) -> None:
    paths = [str(folder) for folder in folders]
    here.configure({}, plugins={"paths": paths, "entryPoints": False, **more})


def test_the_list_names_loaded_disabled_and_failed_plugins(
    here: Surroundings, tmp_path: Path
) -> None:
    folders = [
        plugin_folder(tmp_path),
        plugin_folder(tmp_path, "quiet"),
        plugin_folder(tmp_path, "broken", "raise RuntimeError('no')"),
    ]
    configure(here, *folders, deny=["quiet"])
    status, out, _ = here.nacre("plugins", "list", "--json")
    listed = {
        it["id"]: (it["state"], it["tools"], it["problem"]) for it in json.loads(out)["plugins"]
    }
    assert status == 1
    assert listed == {
        "broken": ("failed", [], "it cannot be imported: RuntimeError: no"),
        "greeter": ("loaded", ["greet"], ""),
        "quiet": ("disabled", [], "`plugins.deny` has 'quiet'"),
    }
    status, out, _ = here.nacre("plugins", "list")
    assert [line.split()[0] for line in out.splitlines()] == [
        "plugin",
        "broken",
        "greeter",
        "quiet",
    ]


def test_the_list_tells_each_problem_once(tmp_path: Path) -> None:
    folder = plugin_folder(tmp_path, "broken", "raise RuntimeError('no')")
    config = tmp_path / "nacre.json5"
    config.write_text(json.dumps({"plugins": {"paths": [str(folder)]}}), encoding="utf-8")
    done = run_nacre("plugins", "list", "--config", config)
    assert "it cannot be imported: RuntimeError: no" in done.stdout
    assert done.stderr == ""
    # An author needs more than that.
    done = run_nacre("plugins", "validate", folder)
    assert "Traceback" in done.stderr
    assert "is not loaded" not in done.stderr


def test_without_plugins_the_list_says_how_to_have_some(here: Surroundings) -> None:
    status, out, err = here.nacre("plugins", "list")
    assert (status, out) == (0, "")
    assert "name their folders in `plugins.paths`" in err


def test_one_plugin_is_shown_with_all_that_it_brings(here: Surroundings) -> None:
    configure(here, WEATHER)
    status, out, _ = here.nacre("plugins", "inspect", "weather")
    assert status == 0
    assert out.splitlines()[0] == "weather 1.0.0: loaded"
    assert "tool       openclaw:weather:weather_cities: The cities that have a forecast." in out
    assert "hook       tool_result_persist\n" in out
    assert "namespace  Weather\n" in out


def test_a_plugin_that_is_not_there_is_answered_with_those_that_are(here: Surroundings) -> None:
    configure(here, WEATHER)
    status, _, err = here.nacre("plugins", "inspect", "wether")
    assert status == 2
    assert "there is no plugin 'wether'; known plugins: weather" in err


def test_a_folder_is_tried_without_a_configuration(here: Surroundings) -> None:
    status, out, _ = here.nacre(
        "plugins", "validate", str(WEATHER), "--settings", "{unit: 'celsius'}"
    )
    assert (status, out.splitlines()[0]) == (0, "weather 1.0.0: loaded")


@pytest.mark.parametrize(
    ("settings", "expected_status", "problem"),
    [
        ("{unit: 'kelvin'}", 1, "`plugins.entries.weather.config.unit` "),
        ("{unit:", 2, "--settings"),
        ("[]", 2, "is a list; allowed: an object"),
    ],
)
def test_settings_that_do_not_fit_are_explained(
    here: Surroundings, settings: str, expected_status: int, problem: str
) -> None:
    status, out, err = here.nacre("plugins", "validate", str(WEATHER), "--settings", settings)
    assert status == expected_status
    assert problem in out + err


def test_a_folder_that_is_no_plugin_is_said_to_be_none(here: Surroundings, tmp_path: Path) -> None:
    status, _, err = here.nacre("plugins", "validate", str(tmp_path))
    assert status == 2
    assert "nacre.plugin.json cannot be read: No such file or directory" in err


def test_a_plugin_that_hangs_in_a_thread_does_not_keep_the_process(tmp_path: Path) -> None:
    hanging = (
        "import threading\n"
        "def register(api): threading.Thread(target=threading.Event().wait).start()\n"
    )
    done = run_nacre("plugins", "validate", plugin_folder(tmp_path, "hanging", hanging))
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "hanging: loaded")
    assert "a tool or plugin did not stop its thread; exiting anyway" in done.stderr
