"""Saves an SDK the walk through a conversation that is JSON already.

The SDKs of OpenAI and Anthropic compare every message of a request with every kind of message that
there is, to rename members that need no renaming. In a session of twenty turns that is half of what
a turn costs, and nothing else runs meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from collections.abc import Mapping

_TOOLS: Final = "tools"
_PLAIN: Final = (str, int, float, bool, type(None))


def send_plainly(resource: Any, conversation: str) -> None:
    """Have `resource.create` send this member, and the tools, as they are given.

    `resource` is `client.chat.completions` and the like; `conversation` is `messages` or `input`.
    """
    create = resource.create

    async def create_plainly(**options: Any) -> Any:
        return await create(**_move_plain_members(options, conversation))

    resource.create = create_plainly


def _move_plain_members(options: Mapping[str, Any], conversation: str) -> dict[str, Any]:
    """With what is plain in `extra_body`, which the SDK merges into the body unread."""
    moved = {
        key: options[key]
        for key in (conversation, _TOOLS)
        if isinstance(options.get(key), list) and _is_plain(options[key])
    }
    if conversation not in moved:
        return dict(options)
    left = {key: value for key, value in options.items() if key not in moved}
    # A member that has to be there; `extra_body` has the last word.
    return {**left, conversation: [], "extra_body": {**moved, **(options.get("extra_body") or {})}}


def _is_plain(value: object) -> bool:
    """Whether it is JSON as it is: no model, no file, and nothing that stands for "left out"."""
    if isinstance(value, dict):
        return all(map(_is_plain, cast("dict[str, object]", value).values()))
    if isinstance(value, list):
        return all(map(_is_plain, cast("list[object]", value)))
    return isinstance(value, _PLAIN)
