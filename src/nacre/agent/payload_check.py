"""Whether a request to a model shows the tools that it should, before it is sent."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from nacre.errors import ToolPayloadError

if TYPE_CHECKING:
    from collections.abc import Sequence

_MAX_SHOWN_NAMES: Final = 10


def verify_names(sent: Sequence[str], *, expected: Sequence[str]) -> None:
    """Fail closed: a model may see just the tools of its run. Raises ToolPayloadError."""
    too_many = Counter(sent) - Counter(expected)
    missing = Counter(expected) - Counter(sent)
    if too_many or missing:
        raise ToolPayloadError(
            "the model request does not hold exactly the tools of the run; "
            f"too many: {_join_names(too_many)}; missing: {_join_names(missing)}. Nothing was sent"
        )


def _join_names(names: Counter[str]) -> str:
    listed = list(names.elements())
    more = len(listed) - _MAX_SHOWN_NAMES
    shown = ", ".join(listed[:_MAX_SHOWN_NAMES]) or "none"
    return f"{shown} and {more} more" if more > 0 else shown
