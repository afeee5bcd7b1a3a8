"""Members of an event's data, as what they have to be or as nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nacre.json_types import JsonObject


def text_in(data: JsonObject, key: str) -> str:
    value = data.get(key)
    return value if isinstance(value, str) else ""


def number_in(data: JsonObject, key: str) -> float:
    value = data.get(key)
    return float(value) if isinstance(value, int | float) else 0.0
