"""The entry point of the plugin: Nacre calls `register` when it loads the plugin."""

from __future__ import annotations

import re

from nacre.plugins.api import ChangeContent, Namespace, PluginApi, ToolResultPersist, namespace_tool

# A relative import works both from a directory and from an installed package.
from .forecasts import Forecast, cities, forecast_for

_COORDINATES = re.compile(r"-?\d{1,3}\.\d{4,}\s*,\s*-?\d{1,3}\.\d{4,}")


def register(api: PluginApi) -> None:
    """Add two tools, a namespace over them, and a hook."""
    unit = str(api.config.get("unit", "celsius"))

    async def weather_forecast(city: str) -> Forecast:
        """Tomorrow's weather in a city.

        Args:
            city: one of the cities that `weather_cities` lists
        """
        return forecast_for(city, unit)

    async def weather_cities() -> list[str]:
        """The cities that have a forecast."""
        return cities()

    api.add_tool(weather_forecast)
    api.add_tool(weather_cities)
    api.add_namespace(
        Namespace(
            id="weather",
            global_name="Weather",
            description="Forecasts.",
            prompt="Use Weather.cities() and Weather.forecast(city).",
            required_tool_names=("weather_forecast", "weather_cities"),
            create_scope=lambda _context: {
                "unit": unit,
                "cities": namespace_tool("weather_cities"),
                "forecast": namespace_tool("weather_forecast", lambda args: {"city": args[0]}),
            },
        )
    )
    api.add_hook("tool_result_persist", _without_coordinates)


async def _without_coordinates(event: ToolResultPersist) -> ChangeContent | None:
    content = _COORDINATES.sub("[a place]", event.content)
    return None if content == event.content else ChangeContent(content)
