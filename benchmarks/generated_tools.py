"""Generates thousands of realistic tools, deterministically."""

from itertools import product
from random import Random
from typing import Any

from benchmarks.tool_words import NOUNS_BY_AREA, PROPERTIES, PURPOSES, QUALIFIERS, VENDORS, VERBS
from nacre import Tool, ToolCall
from nacre.json_types import JsonObject

MANY = 10_000
_SEED = 20_260_901
_OWNERS = tuple((vendor, area) for area in NOUNS_BY_AREA for vendor in VENDORS)


def generated_tools(count: int) -> list[Tool]:
    """Tools with unique names from up to 100 owners."""
    random = Random(_SEED)
    names_by_area = {area: _names(area, random) for area in NOUNS_BY_AREA}
    owners = (_OWNERS[number % len(_OWNERS)] for number in range(count))
    return [_tool(vendor, area, names_by_area[area].pop(), random) for vendor, area in owners]


def task_queries(count: int) -> list[str]:
    """Queries for these tools, as a model might write them."""
    random = Random(_SEED)
    areas = list(NOUNS_BY_AREA)
    return [_query(random.choice(areas), random) for _ in range(count)]


def _query(area: str, random: Random) -> str:
    noun = random.choice(NOUNS_BY_AREA[area]).replace("_", " ")
    return f"{random.choice(VERBS)} the {random.choice(QUALIFIERS)} {noun} of a {area} account"


def _names(area: str, random: Random) -> list[tuple[str, str, str]]:
    """The verb, qualifier and noun of all possible tools of an area, unordered."""
    found: list[tuple[str, str, str]] = list(product(VERBS, QUALIFIERS, NOUNS_BY_AREA[area]))
    random.shuffle(found)
    return found


def _tool(vendor: str, area: str, words: tuple[str, str, str], random: Random) -> Tool:
    verb, qualifier, noun = words
    thing = f"{qualifier} {noun.replace('_', ' ')}"
    return Tool(
        # Includes the area, because some nouns belong to two areas.
        name=f"{area}_{verb}_{qualifier}_{noun}",
        label=f"{verb.capitalize()} {thing}" if random.random() < 0.5 else None,
        description=(
            f"{verb.capitalize()} the {thing} in {vendor.capitalize()} {area} "
            f"{random.choice(PURPOSES)}; names are matched exactly"
        ),
        parameters=_parameters(noun, random),
        owner=f"{vendor}-{area}",
        execute=_return_input,
    )


def _parameters(noun: str, random: Random) -> JsonObject:
    key = f"{noun}_id"
    shown = noun.replace("_", " ")
    properties: JsonObject = {key: {"type": "string", "description": f"Id of the {shown}"}}
    others = [name for name in PROPERTIES if name != key]
    for name in random.sample(others, random.randint(2, 5)):
        properties[name] = _property(name, shown)
    return {"type": "object", "properties": properties, "required": [key]}


def _property(name: str, noun: str) -> JsonObject:
    kind = PROPERTIES[name]
    described: JsonObject = {"type": kind, "description": f"{name.replace('_', ' ')} of the {noun}"}
    if kind == "array":
        described["items"] = {"type": "string"}
    return described


async def _return_input(given: dict[str, Any], _call: ToolCall) -> object:
    return given
