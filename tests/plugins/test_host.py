"""Loading plugins: whole or not at all, and gone without a trace."""

import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import pytest

from nacre.config.plugins import PluginEntry, PluginsConfig
from nacre.errors import PluginError
from nacre.run_context import AbortSignal, RunContext
from nacre.tools import Tool, ToolCall
from tests.contract.requirements import requirement
from tests.plugins.plugin_folders import GREETING, Plugins, plugin_folder

if TYPE_CHECKING:
    from nacre.json_types import JsonObject

EVERYTHING = """
from pathlib import Path
from nacre.plugins.api import Namespace, PluginApi, namespace_tool

async def look(place: str) -> str:
    "Look at a place."
    return place

async def before_tool_call(event):
    return None

def register(api: PluginApi) -> None:
    api.add_tool(look)
    api.add_hook("before_tool_call", before_tool_call)
    api.add_namespace(Namespace(
        id="eyes", global_name="Eyes", description="Look.", required_tool_names=("look",),
        create_scope=lambda context: {"look": namespace_tool("look")},
    ))
    api.on_unload(lambda: Path(api.config["mark"]).write_text("unloaded"))
"""
MARK_SCHEMA = {"type": "object", "properties": {"mark": {"type": "string"}}}


@pytest.fixture
async def plugins() -> AsyncGenerator[Plugins]:
    loaded = Plugins()
    async with loaded.host:
        yield loaded


def call() -> ToolCall:
    return ToolCall(
        id="call_1", parent_id="", context=RunContext(), abort=AbortSignal(), update=lambda _: None
    )


async def called(tool: Tool, **given: object) -> object:
    with anyio.fail_after(5):
        return await tool.execute(given, call())


def plugin_modules() -> list[str]:
    return [name for name in sys.modules if name.startswith("nacre_plugin_")]


async def test_a_plugins_tool_is_owned_by_the_plugin_and_can_be_called(
    plugins: Plugins, tmp_path: Path
) -> None:
    await plugins.apply(plugin_folder(tmp_path))
    assert plugins.tool_ids == ["openclaw:greeter:greet"]
    assert await called(plugins.host.tools[0], name="Ada") == "hello Ada"


async def test_unloading_takes_out_tools_hooks_namespaces_and_modules(
    plugins: Plugins, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    folder = plugin_folder(tmp_path, "seer", EVERYTHING, configSchema=MARK_SCHEMA)
    await plugins.apply(folder, seer={"mark": str(mark)})
    assert (plugins.tool_ids, plugins.problems) == (["openclaw:seer:look"], {})
    assert len(plugins.hooks.for_event("before_tool_call")) == 1
    assert len(plugins.namespaces.registrations) == 1
    assert plugin_modules()

    assert await plugins.host.unload("seer")
    assert plugins.tool_ids == []
    assert plugins.hooks.for_event("before_tool_call") == ()
    assert plugins.namespaces.registrations == ()
    assert plugin_modules() == []
    assert mark.read_text(encoding="utf-8") == "unloaded"
    assert not await plugins.host.unload("seer")


RECALL = """
from nacre.plugins.api import ContextEngine, PluginApi

class Recall(ContextEngine):
    id = "recall"

def register(api: PluginApi) -> None:
    api.add_guidance("Say /recall.", surfaces=["codex_app_server"])
    api.add_context_engine(Recall())
"""


async def test_a_context_engine_and_guidance_come_and_go_with_their_plugin(
    plugins: Plugins, tmp_path: Path
) -> None:
    first = plugin_folder(tmp_path, "first", RECALL)
    await plugins.apply(first, plugin_folder(tmp_path, "second", RECALL))
    assert "already one of first" in plugins.problems["second"]
    loaded = next(status for status in plugins.host.status() if status.id == "first")
    assert loaded.to_json()["contextEngines"] == ["recall"]
    assert plugins.contexts.engine("recall") is not None
    # Nothing of the second is left, although its guidance was valid.
    assert plugins.contexts.guidance["codex_app_server"] == ("Say /recall.",)
    await plugins.host.unload("first")
    assert plugins.contexts.engine("recall") is None
    assert plugins.contexts.guidance["codex_app_server"] == ()


@requirement("namespaces:cleared-with-plugin")
async def test_a_load_that_fails_at_its_end_leaves_nothing_behind(
    plugins: Plugins, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    code = f"{EVERYTHING}\n    raise RuntimeError('no licence')\n"
    folder = plugin_folder(tmp_path, "seer", code, configSchema=MARK_SCHEMA)
    good = plugin_folder(tmp_path)
    await plugins.apply(folder, good, seer={"mark": str(mark)})
    assert plugins.problems == {"seer": "`register` failed: RuntimeError: no licence"}
    assert plugins.tool_ids == ["openclaw:greeter:greet"]
    assert plugins.hooks.for_event("before_tool_call") == ()
    assert plugins.namespaces.registrations == ()
    assert [name for name in plugin_modules() if "seer" in name] == []
    assert mark.read_text(encoding="utf-8") == "unloaded"


async def test_a_namespace_that_another_plugin_has_rolls_back_the_whole_load(
    plugins: Plugins,
    tmp_path: Path,
) -> None:
    folders = [
        plugin_folder(tmp_path, name, EVERYTHING, configSchema=MARK_SCHEMA)
        for name in ("first", "second")
    ]
    settings: JsonObject = {"mark": str(tmp_path / "mark")}
    await plugins.apply(*folders, first=settings, second=settings)
    assert "plugin 'first' has registered this id" in plugins.problems["second"]
    assert plugins.tool_ids == ["openclaw:first:look"]
    assert len(plugins.hooks.for_event("before_tool_call")) == 1


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("import no_such_thing", "it cannot be imported: ModuleNotFoundError: No module named"),
        ("def register(api:", "it cannot be imported: SyntaxError"),
        ("raise SystemExit(3)", "it cannot be imported: SystemExit: 3"),
        ("x = 1", "its module has no function 'register'"),
        ("register = 5", "its module has no function 'register'"),
        ("def register(): ...", "`register` failed: TypeError"),
        (f"{GREETING}    api.add_tool(greet)\n", "the tool 'greet' was added twice"),
        (
            "from nacre.plugins.api import tool\n"
            "@tool(owner='bank')\nasync def pay() -> None: ...\n"
            "def register(api): api.add_tool(pay)",
            "the tool 'pay' has the id openclaw:bank:pay; the owner of a plugin's tool",
        ),
        (
            "def register(api): api.add_hook('before_lunch', print)",
            "there is no hook event 'before_lunch'",
        ),
        ("def register(api): api.add_tool(7)", "`register` failed:"),
        ("def register(api): raise SystemExit(1)", "`register` failed: SystemExit: 1"),
        ("def register(api): api.add_namespace('x')", "its additions are invalid:"),
    ],
)
async def test_faulty_code_is_reported_and_the_others_load(
    plugins: Plugins, tmp_path: Path, code: str, problem: str
) -> None:
    await plugins.apply(plugin_folder(tmp_path, "faulty", code), plugin_folder(tmp_path))
    assert problem in plugins.problems["faulty"]
    assert plugins.tool_ids == ["openclaw:greeter:greet"]


@pytest.mark.parametrize("name", ["nul\0", "half\ud800"])
async def test_a_path_that_no_file_can_have_is_reported_and_the_others_load(
    plugins: Plugins, tmp_path: Path, name: str
) -> None:
    await plugins.apply(tmp_path / name, plugin_folder(tmp_path))
    shown = name.encode(errors="backslashreplace").decode()
    assert "cannot be read: that is not a file name" in plugins.problems[shown]
    assert plugins.tool_ids == ["openclaw:greeter:greet"]


async def test_two_plugins_may_have_modules_of_the_same_name(
    plugins: Plugins, tmp_path: Path
) -> None:
    code = (
        "from .helpers import WORD\n"
        "async def say() -> str:\n    'Say it.'\n    return WORD\n"
        "def register(api): api.add_tool(say)\n"
    )
    folders = [plugin_folder(tmp_path, name, code) for name in ("one", "two")]
    for folder in folders:
        (folder / "helpers.py").write_text(f"WORD = {folder.name!r}", encoding="utf-8")
    await plugins.apply(*folders)
    assert [await called(tool) for tool in plugins.host.tools] == ["one", "two"]


async def test_register_may_be_async(plugins: Plugins, tmp_path: Path) -> None:
    await plugins.apply(
        plugin_folder(tmp_path, code=GREETING.replace("def register", "async def register"))
    )
    assert plugins.tool_ids == ["openclaw:greeter:greet"]


async def test_a_changed_file_is_read_again_when_the_plugin_is_loaded_again(
    plugins: Plugins, tmp_path: Path
) -> None:
    folder = plugin_folder(tmp_path)
    await plugins.apply(folder)
    await plugins.apply()
    # A new length too: Python compares size and second of a cached file.
    (folder / "plugin.py").write_text(GREETING.replace("hello", "good day"), encoding="utf-8")
    await plugins.apply(folder)
    assert await called(plugins.host.tools[0], name="Ada") == "good day Ada"


async def test_a_tool_that_a_run_still_holds_says_that_its_plugin_is_gone(
    plugins: Plugins, tmp_path: Path
) -> None:
    await plugins.apply(plugin_folder(tmp_path))
    (held,) = plugins.host.tools
    await plugins.host.unload("greeter")
    with pytest.raises(PluginError, match="the plugin greeter was unloaded"):
        await called(held, name="Ada")


async def test_a_call_that_runs_while_its_plugin_is_unloaded_finishes(
    plugins: Plugins, tmp_path: Path
) -> None:
    code = (
        "import anyio\nstarted, go = anyio.Event(), anyio.Event()\n"
        "async def slow() -> str:\n    'Wait.'\n    started.set()\n    await go.wait()\n"
        "    return 'done'\n"
        "def register(api): api.add_tool(slow)\n"
    )
    await plugins.apply(plugin_folder(tmp_path, "slow", code))
    module = next(sys.modules[name] for name in plugin_modules() if name.endswith(".plugin"))
    results: list[object] = []

    async def use() -> None:
        results.append(await called(plugins.host.tools[0]))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(use)
            await module.started.wait()
            await plugins.host.unload("slow")
            module.go.set()
    assert results == ["done"]


async def test_a_plugin_whose_settings_changed_is_loaded_again(
    plugins: Plugins, tmp_path: Path
) -> None:
    code = (
        "def register(api):\n"
        "    async def word() -> str:\n        'Say it.'\n        return api.config['word']\n"
        "    api.add_tool(word)\n"
    )
    schema = {"properties": {"word": {"type": "string"}}, "required": ["word"]}
    folder = plugin_folder(tmp_path, "word", code, configSchema=schema)
    await plugins.apply(folder, word={"word": "one"})
    await plugins.apply(folder, word={"word": "two"})
    assert [await called(tool) for tool in plugins.host.tools] == ["two"]
    await plugins.apply(folder)
    assert plugins.tool_ids == []
    assert plugins.problems["word"] == ("`plugins.entries.word.config.word` is missing")


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (PluginsConfig(deny=("greet*",)), "`plugins.deny` has 'greet*'"),
        (PluginsConfig(allow=("weather",)), "`plugins.allow` does not name it"),
        (
            PluginsConfig(entries={"greeter": PluginEntry(is_enabled=False)}),
            "`plugins.entries.greeter.enabled` is false",
        ),
    ],
)
async def test_a_plugin_that_the_configuration_does_not_want_is_disabled(
    plugins: Plugins, tmp_path: Path, config: PluginsConfig, problem: str
) -> None:
    paths = (plugin_folder(tmp_path),)
    await plugins.host.apply(
        PluginsConfig(
            paths=paths, allow=config.allow, deny=config.deny, entries=config.entries,
            uses_entry_points=False,
        )
    )  # fmt: skip
    (status,) = plugins.host.status()
    assert (status.state, status.problem, plugins.tool_ids) == ("disabled", problem, [])


async def test_plugins_can_be_switched_off_altogether(plugins: Plugins, tmp_path: Path) -> None:
    await plugins.host.apply(PluginsConfig(is_enabled=False, paths=(plugin_folder(tmp_path),)))
    assert plugins.host.status() == []


async def test_a_second_plugin_of_an_id_is_refused_and_the_first_stays(
    plugins: Plugins, tmp_path: Path
) -> None:
    first, second = plugin_folder(tmp_path / "a"), plugin_folder(tmp_path / "b")
    await plugins.apply(first, second)
    assert plugins.problems == {"greeter": f"the id 'greeter' belongs to {first}"}
    assert plugins.tool_ids == ["openclaw:greeter:greet"]


async def test_a_plugin_cannot_be_named_like_an_mcp_server(tmp_path: Path) -> None:
    plugins = Plugins("greeter")
    await plugins.apply(plugin_folder(tmp_path))
    assert plugins.problems == {
        "greeter": "the id 'greeter' is the name of an MCP server; rename one"
    }


async def test_a_folder_that_is_not_there_is_reported(plugins: Plugins, tmp_path: Path) -> None:
    await plugins.apply(tmp_path / "nowhere")
    assert "cannot be read: No such file" in plugins.problems["nowhere"]


@pytest.mark.parametrize(
    "fault", ["RuntimeError('broken')", "SystemExit(3)", "asyncio.CancelledError()"]
)
@pytest.mark.parametrize("function", ["def", "async def"])
async def test_an_unload_callback_that_fails_does_not_keep_the_others(
    plugins: Plugins, tmp_path: Path, function: str, fault: str
) -> None:
    mark = tmp_path / "mark"
    code = (
        "import asyncio\n"
        "from pathlib import Path\n"
        "def register(api):\n"
        f"    api.on_unload(lambda: Path({str(mark)!r}).write_text('told'))\n"
        f"    {function} fails(): raise {fault}\n"
        "    api.on_unload(fails)\n"
    )
    await plugins.apply(plugin_folder(tmp_path, "noisy", code))
    await plugins.host.unload("noisy")
    assert mark.read_text(encoding="utf-8") == "told"
    assert plugin_modules() == []


CANCELLED = "CancelledError: it was cancelled"
LEFT_OPEN = "RuntimeError: it left a cancel scope or a task group open"
CANCELLING = [
    ("asyncio.current_task().cancel(); await asyncio.sleep(0)", CANCELLED),
    ("asyncio.current_task().cancel()", CANCELLED),
    ("raise asyncio.CancelledError", CANCELLED),
    ("anyio.CancelScope().__enter__().cancel(); await asyncio.sleep(0)", LEFT_OPEN),
    ("await anyio.create_task_group().__aenter__()", LEFT_OPEN),
]


@pytest.mark.parametrize(("step", "problem"), CANCELLING)
async def test_an_async_register_that_cancels_its_task_is_a_failed_load_and_nothing_else(
    plugins: Plugins, tmp_path: Path, step: str, problem: str
) -> None:
    mark = tmp_path / "mark"
    code = (
        f"import asyncio\nimport anyio\n{EVERYTHING}".replace("def register", "async def register")
        + f"    {step}\n"
    )
    folder = plugin_folder(tmp_path, "seer", code, configSchema=MARK_SCHEMA)
    await plugins.apply(folder, plugin_folder(tmp_path), seer={"mark": str(mark)})
    # Whoever applied it goes on as before.
    await anyio.lowlevel.checkpoint()
    assert plugins.problems == {"seer": f"`register` failed: {problem}"}
    assert plugins.tool_ids == ["openclaw:greeter:greet"]
    assert plugins.hooks.for_event("before_tool_call") == ()
    assert plugins.namespaces.registrations == ()
    assert mark.read_text(encoding="utf-8") == "unloaded"


@pytest.mark.parametrize(("step", "problem"), CANCELLING)
async def test_an_unload_callback_that_cancels_its_task_cancels_nothing_else(
    plugins: Plugins,
    tmp_path: Path,
    step: str,
    problem: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    code = (
        "import asyncio\nimport anyio\n"
        "def register(api):\n"
        f"    async def bye():\n        {step}\n"
        "    api.on_unload(bye)\n"
    )
    await plugins.apply(plugin_folder(tmp_path, "rude", code))
    assert await plugins.host.unload("rude")
    await anyio.lowlevel.checkpoint()
    assert plugin_modules() == []
    assert problem.partition(":")[0] in caplog.text


async def test_whoever_is_cancelled_during_an_async_register_ends_it(
    plugins: Plugins, tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    code = (
        f"import sys\nimport anyio\n{EVERYTHING}".replace("def register", "async def register")
        + "    sys.registering.set()\n    await anyio.sleep_forever()\n"
    )
    folder = plugin_folder(tmp_path, "seer", code, configSchema=MARK_SCHEMA)
    registering = sys.registering = anyio.Event()  # pyright: ignore[reportAttributeAccessIssue]
    try:
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: plugins.apply(folder, seer={"mark": str(mark)}))
                await registering.wait()
                tasks.cancel_scope.cancel()
    finally:
        del sys.registering  # pyright: ignore[reportAttributeAccessIssue]
    assert (plugins.tool_ids, plugin_modules()) == ([], [])
    assert mark.read_text(encoding="utf-8") == "unloaded"


async def test_nothing_can_be_added_later(plugins: Plugins, tmp_path: Path) -> None:
    code = (
        "async def late() -> str:\n    'Late.'\n    kept.add_tool(late)\n    return 'added'\n"
        "def register(api):\n    global kept\n    kept = api\n    api.add_tool(late)\n"
    )
    await plugins.apply(plugin_folder(tmp_path, "late", code))
    with pytest.raises(PluginError, match="nothing can be added after `register` has returned"):
        await called(plugins.host.tools[0])
    assert plugins.tool_ids == ["openclaw:late:late"]


async def test_the_end_of_the_host_unloads_every_plugin(plugins: Plugins, tmp_path: Path) -> None:
    async with plugins.host:
        await plugins.apply(plugin_folder(tmp_path))
    assert (plugins.tool_ids, plugin_modules()) == ([], [])


async def test_a_plugin_goes_when_an_mcp_server_gets_its_name(
    plugins: Plugins, tmp_path: Path
) -> None:
    folder = plugin_folder(tmp_path)
    await plugins.apply(folder)
    plugins.host.reserved_ids = ["greeter"]
    await plugins.apply(folder)
    assert plugins.tool_ids == []
    assert "is the name of an MCP server" in plugins.problems["greeter"]
