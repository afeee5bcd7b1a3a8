"""The example plugin, as its folder stands: tools, namespace, hook and settings."""

from pathlib import Path

import pytest

from nacre.code_mode import Completed, Runtime
from nacre.code_mode.namespaces import NamespaceRegistry
from nacre.config.plugins import PluginEntry, PluginsConfig
from nacre.hooks import HookRunner, Hooks, ToolResultPersist
from nacre.plugins import PluginHost
from nacre.run_context import RunContext

FOLDER = Path(__file__).parents[2] / "examples" / "weather_plugin" / "src" / "nacre_weather"
PROGRAM = """
const cities = await Weather.cities();
const all = await Promise.all(cities.map((city) => Weather.forecast(city)));
return all.map((it) => `${it.city} ${it.temperature} ${it.unit}`);
"""


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        ("celsius", ["Lisbon 24 celsius", "Nairobi 26 celsius", "Oslo 9 celsius"]),
        (
            "fahrenheit",
            ["Lisbon 75.2 fahrenheit", "Nairobi 78.8 fahrenheit", "Oslo 48.2 fahrenheit"],
        ),
    ],
)
async def test_a_program_uses_the_namespace_of_the_plugin(unit: str, expected: list[str]) -> None:
    hooks = Hooks()
    async with (
        Runtime() as runtime,
        PluginHost(hooks=hooks, namespaces=runtime.namespaces) as host,
    ):
        await host.apply(_config({"unit": unit}))
        result = await runtime.run(tools=host.tools, hooks=hooks).exec(PROGRAM)
    assert isinstance(result, Completed), result
    assert result.value == expected
    assert set(result.telemetry.called_tools) == {
        "openclaw:weather:weather_cities",
        "openclaw:weather:weather_forecast",
    }


async def test_a_city_that_it_does_not_know_is_answered_with_those_that_it_knows() -> None:
    hooks = Hooks()
    program = "return Weather.forecast('Paris').catch((error) => [error.message, error.errorType])"
    async with (
        Runtime() as runtime,
        PluginHost(hooks=hooks, namespaces=runtime.namespaces) as host,
    ):
        await host.apply(_config({}))
        result = await runtime.run(tools=host.tools, hooks=hooks).exec(program)
    assert isinstance(result, Completed), result
    message = "there is no forecast for 'Paris'; there are: Lisbon, Nairobi, Oslo"
    assert result.value == [message, "ValueError"]


async def test_its_hook_keeps_coordinates_out_of_sessions() -> None:
    hooks = Hooks()
    event = ToolResultPersist(
        context=RunContext(), tool_name="where", call_id="1", content="at 38.7223, -9.1393 now"
    )
    async with PluginHost(hooks=hooks, namespaces=NamespaceRegistry()) as host:
        await host.apply(_config({}))
        assert await HookRunner(hooks).tool_result_persist(event) == "at [a place] now"


async def test_settings_that_it_does_not_know_keep_it_out() -> None:
    async with PluginHost(hooks=Hooks(), namespaces=NamespaceRegistry()) as host:
        await host.apply(_config({"unit": "kelvin"}))
        (status,) = host.status()
    assert status.state == "failed"
    assert status.problem.startswith("`plugins.entries.weather.config.unit` ")


def _config(settings: dict[str, str]) -> PluginsConfig:
    return PluginsConfig(
        paths=(FOLDER,),
        uses_entry_points=False,
        entries={"weather": PluginEntry(config={**settings})},
    )
