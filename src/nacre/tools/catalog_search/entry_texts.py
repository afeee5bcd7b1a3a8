"""What a catalog entry says about itself, by field, as far as it is searched."""

from __future__ import annotations

import re
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from nacre.json_types import JsonObject, JsonValue
    from nacre.tools.catalog import CatalogEntry
    from nacre.tools.catalog_search.documents import FieldName

# Who provides a tool may write without end; what it is for stands at the beginning.
_MAX_FIELD_CHARACTERS: Final = 4_000
_MAX_SCHEMA_NODES: Final = 400
_MAX_CHOICES: Final = 20
_MIN_SUMMARY_CHARACTERS: Final = 20
# After a full stop and a space, or the signs of Chinese and Japanese.
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s|[\u3002\uff01\uff1f\n]")


def texts_of(entry: CatalogEntry) -> dict[FieldName, str]:
    description = entry.description[:_MAX_FIELD_CHARACTERS].strip()
    end = _SENTENCE_END.search(description, _MIN_SUMMARY_CHARACTERS)
    summary_length = len(description) if end is None else end.start()
    schema = _SchemaTexts(entry.tool.parameters)
    return {
        "name": entry.name,
        "label": (entry.label or "")[:_MAX_FIELD_CHARACTERS],
        "summary": description[:summary_length],
        "description": description[summary_length:],
        "parameter": " ".join(schema.names)[:_MAX_FIELD_CHARACTERS],
        "parameter description": " ".join(schema.descriptions)[:_MAX_FIELD_CHARACTERS],
        "choice": " ".join(schema.choices)[:_MAX_FIELD_CHARACTERS],
        "owner": entry.source_name or "",
    }


class _SchemaTexts:
    """The names of the properties, descriptions and choices, wherever they stand in a schema."""

    def __init__(self, schema: JsonObject) -> None:
        self.names: list[str] = []
        self.descriptions: list[str] = []
        self.choices: list[str] = []
        self._open: deque[JsonValue] = deque([schema])
        for _ in range(_MAX_SCHEMA_NODES):
            if not self._open:
                break
            node = self._open.popleft()
            if isinstance(node, list):
                self._open.extend(node[:_MAX_SCHEMA_NODES])
            elif isinstance(node, dict):
                self._read(node)

    def _read(self, node: JsonObject) -> None:
        description = node.get("description")
        if isinstance(description, str):
            self.descriptions.append(description[:_MAX_FIELD_CHARACTERS])
        choices = node.get("enum")
        if isinstance(choices, list):
            texts = (each for each in choices[:_MAX_CHOICES] if isinstance(each, str))
            self.choices.extend(each[:_MAX_FIELD_CHARACTERS] for each in texts)
        properties = node.get("properties")
        if isinstance(properties, dict):
            some = list(islice(properties.items(), _MAX_SCHEMA_NODES))
            self.names.extend(name for name, _ in some)
            self._open.extend(part for _, part in some)
        for place in ("items", "anyOf", "oneOf", "allOf"):
            if place in node:
                self._open.append(node[place])
