"""Whether a tool can be called without input."""

from __future__ import annotations

from typing import Final

from nacre.tools.schema_references import listed, mapped, target_of

_MAX_DEPTH: Final = 20


def requires_members(schema: object) -> bool:
    """Whether an input without members is refused; in doubt it is."""
    return _RequiredMembers(schema).are_in(schema, 0)


class _RequiredMembers:
    """Looks at each schema once, so that references cannot multiply the work."""

    def __init__(self, root: object) -> None:
        self._root = root
        self._found: dict[int, bool] = {}

    def are_in(self, schema: object, depth: int) -> bool:
        if depth > _MAX_DEPTH:
            return True
        key = id(schema)
        if key not in self._found:
            # Met again inside itself: that asks for nothing more.
            self._found[key] = False
            self._found[key] = self._look(mapped(schema), depth + 1)
        return self._found[key]

    def _look(self, node: dict[str, object], depth: int) -> bool:
        if listed(node.get("required")):
            return True
        parts = listed(node.get("allOf"))
        reference = node.get("$ref")
        if isinstance(reference, str):
            parts.append(target_of(self._root, reference))
        if any(self.are_in(part, depth) for part in parts):
            return True
        choices = (listed(node.get(key)) for key in ("anyOf", "oneOf"))
        return any(all(self.are_in(part, depth) for part in parts) for parts in choices if parts)
