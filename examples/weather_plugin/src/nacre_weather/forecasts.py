"""A fixed weather forecast, without a network."""

from __future__ import annotations

from typing import TypedDict


class Forecast(TypedDict):
    """The forecast for one city."""

    city: str
    temperature: float
    unit: str
    sky: str


_CELSIUS = {"Lisbon": 24.0, "Oslo": 9.0, "Nairobi": 26.0}


def cities() -> list[str]:
    return sorted(_CELSIUS)


def forecast_for(city: str, unit: str) -> Forecast:
    """The forecast of a city; raises ValueError with the known cities, which the model reads."""
    if city not in _CELSIUS:
        raise ValueError(f"there is no forecast for {city!r}; there are: {', '.join(cities())}")
    celsius = _CELSIUS[city]
    temperature = celsius if unit == "celsius" else celsius * 9 / 5 + 32
    sky = "clear" if celsius > 20 else "grey"
    return Forecast(city=city, temperature=temperature, unit=unit, sky=sky)
