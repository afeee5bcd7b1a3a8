"""The debug switches of the environment."""

import logging
import subprocess
import sys

import pytest

from nacre.telemetry.debug_flags import DebugFlags, debug_flags_from, debug_log


def test_without_switches_everything_is_off() -> None:
    flags = debug_flags_from({})
    assert flags == DebugFlags()
    assert not flags.is_any_on


@pytest.mark.parametrize(
    ("environment", "flags"),
    [
        ({"OPENCLAW_DEBUG_CODE_MODE": "1"}, DebugFlags(code_mode=True)),
        ({"OPENCLAW_DEBUG_CODE_MODE": " TRUE "}, DebugFlags(code_mode=True)),
        ({"OPENCLAW_DEBUG_MODEL_TRANSPORT": "1"}, DebugFlags(model_transport=True)),
        ({"OPENCLAW_DEBUG_MODEL_PAYLOAD": "tools"}, DebugFlags(model_payload="tools")),
        (
            {"OPENCLAW_DEBUG_MODEL_PAYLOAD": "full-redacted"},
            DebugFlags(model_payload="full-redacted"),
        ),
        ({"OPENCLAW_DEBUG_SSE": "events"}, DebugFlags(sse="events")),
        ({"OPENCLAW_DEBUG_SSE": "peek"}, DebugFlags(sse="peek")),
    ],
)
def test_each_switch_turns_on_its_own(environment: dict[str, str], flags: DebugFlags) -> None:
    assert debug_flags_from(environment) == flags
    assert flags.is_any_on


@pytest.mark.parametrize("value", ["", "0", "false", "off"])
def test_a_switch_can_be_turned_off(value: str, caplog: pytest.LogCaptureFixture) -> None:
    names = ("CODE_MODE", "MODEL_TRANSPORT", "MODEL_PAYLOAD", "SSE")
    assert debug_flags_from({f"OPENCLAW_DEBUG_{name}": value for name in names}) == DebugFlags()
    assert caplog.records == []


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("OPENCLAW_DEBUG_CODE_MODE", "perhaps", "1 and 0"),
        ("OPENCLAW_DEBUG_MODEL_PAYLOAD", "full", "tools and full-redacted"),
        ("OPENCLAW_DEBUG_SSE", "1", "events and peek"),
    ],
)
def test_a_value_that_a_switch_has_not_is_warned_of_and_leaves_it_off(
    name: str, value: str, allowed: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert debug_flags_from({name: value}) == DebugFlags()
    assert caplog.messages == [f"{name} is {value!r} and stays off; allowed: {allowed}"]


def test_each_topic_has_a_logger_below_the_one_of_all() -> None:
    assert debug_log("sse").name == "nacre.debug.sse"
    assert debug_log("sse").parent is logging.getLogger("nacre.debug")


def test_a_switch_makes_its_lines_visible_in_a_program_that_has_no_logging() -> None:
    code = (
        "from nacre.telemetry.debug_flags import get_debug_flags, debug_log;"
        "get_debug_flags(); get_debug_flags(); debug_log('sse').info('seen once')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"OPENCLAW_DEBUG_SSE": "events"},
    )
    assert done.stderr.count("nacre.debug.sse: seen once") == 1
