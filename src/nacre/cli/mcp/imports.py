"""Which servers of another client are new to the configuration, and what to say of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nacre.cli.mcp.entries import entry_notes, plain_secrets
from nacre.cli.output import UsageProblem
from nacre.config.mcp import server_name_from
from nacre.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nacre.cli.mcp.config import ConfigDocument
    from nacre.json_types import JsonObject


def new_entries(
    found: Mapping[str, JsonObject], document: ConfigDocument
) -> tuple[dict[str, JsonObject], list[str]]:
    """The entries to add, by name, and notes: whatever is not added is in one of them."""
    new: dict[str, JsonObject] = {}
    notes: list[str] = []
    for key, entry in found.items():
        try:
            name = server_name_from(key, path=repr(key))
            own = document.entries.get(name, new.get(name))
            if own is not None:
                how = "as it is" if own == entry else "with other settings, which stay"
                notes.append(f"{name} is there already, {how}")
                continue
            notes += entry_notes(name, entry)
        except (ConfigError, UsageProblem) as error:
            notes.append(f"{key!r} is left out: {error}")
            continue
        new[name] = entry
        notes += [
            f"the value of {secret} of {name} is copied as it is; "
            "to keep it out, write a reference such as ${NAME} in its place"
            for secret in plain_secrets(entry)
        ]
    return new, notes
