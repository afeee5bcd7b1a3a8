"""The core tools together, and cleaning up processes."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from nacre.config.sections import CoreToolsConfig, ExecToolConfig, FsToolsConfig, WebFetchConfig
from nacre.errors import ToolInputError
from nacre.json_types import JsonObject
from nacre.tools import InputValidators
from nacre.tools.core.core_tools import CoreTools
from tests.tools.core.tool_calls import Calls

ALL = CoreToolsConfig(
    exec=ExecToolConfig(is_enabled=True),
    web_fetch=WebFetchConfig(is_enabled=True, allow=("example.org",)),
)


@pytest.mark.parametrize(
    ("config", "names"),
    [
        (CoreToolsConfig(), "read write edit list search message"),
        (ALL, "read write edit list search exec process web_fetch message"),
        (CoreToolsConfig(fs=FsToolsConfig(is_enabled=False)), "message"),
    ],
)
def test_there_are_those_that_are_switched_on(
    tmp_path: Path, config: CoreToolsConfig, names: str
) -> None:
    tools = CoreTools(config, workspace=tmp_path).tools
    assert [tool.name for tool in tools] == names.split()
    assert {tool.owner for tool in tools} == {"core"}


@pytest.mark.parametrize(
    ("name", "fits", "does_not"),
    [
        ("exec", {"command": "ls", "timeoutSeconds": 0.5}, {"command": "ls", "timeoutSeconds": 0}),
        ("exec", {"argv": ["ls"], "folder": "src"}, {"argv": []}),
        ("process", {"action": "output", "processId": "p1", "after": 3}, {"action": "restart"}),
        ("web_fetch", {"url": "https://example.org/"}, {"url": "x", "method": "POST"}),
        ("message", {"text": "hello"}, {"text": ""}),
    ],
)
def test_inputs_are_checked(
    tmp_path: Path, name: str, fits: JsonObject, does_not: JsonObject
) -> None:
    tools = {tool.name: tool for tool in CoreTools(ALL, workspace=tmp_path).tools}
    assert InputValidators().check(tools[name], fits) == fits
    with pytest.raises(ToolInputError):
        InputValidators().check(tools[name], does_not)


async def test_processes_end_with_the_tools_even_if_nobody_entered_them(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        core = CoreTools(ALL, workspace=tmp_path)
        stack.push_async_exit(core)
        calls = Calls(core.tools)
        await calls.call("exec", command="sleep 1000", background=True)
    (process,) = (await calls.call("process", action="list"))["processes"]
    assert (process["status"], process["signal"]) == ("ended", "SIGTERM")
