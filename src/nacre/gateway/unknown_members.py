"""Members of a body that no schema has: told with the one that was meant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, get_args

from pydantic import BaseModel

from nacre.config.setting_paths import nearest_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from starlette.routing import BaseRoute

UNKNOWN: Final = "extra_forbidden"
"""The type of such a problem, as pydantic has it."""


def describe_unknown(route: BaseRoute | None, location: Sequence[int | str]) -> str:
    """What to say of the member at this place of a request."""
    *path, member = location
    known = _known_members(route, path)
    if not known:
        return "is unknown"
    near = nearest_key(str(member), known)
    hint = f"did you mean `{near}`?" if near else f"known: {', '.join(known)}"
    return f"is unknown; {hint}"


def _known_members(route: BaseRoute | None, path: Sequence[int | str]) -> list[str]:
    field = getattr(route, "body_field", None)
    if field is None or path[:1] != ["body"]:
        return []
    found = _models_in(field.field_info.annotation)
    for step in path[1:]:
        if isinstance(step, str):
            found = [inner for model in found for inner in _models_at(model, step)]
    return [name for model in found for name in _fields(model)]


def _models_at(model: type[BaseModel], name: str) -> Iterable[type[BaseModel]]:
    return _models_in(_fields(model).get(name))


def _fields(model: type[BaseModel]) -> Mapping[str, object]:
    """The types of its members, by their names on the wire."""
    return {field.alias or name: field.annotation for name, field in model.model_fields.items()}


def _models_in(annotation: object) -> list[type[BaseModel]]:
    """All schemas that a type is made of: those of a list's items among them."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _models_in(inner)]
