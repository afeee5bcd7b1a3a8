"""Regular expressions of a model, matched line by line in time that is linear in the line.

An engine that goes back, or writes repetitions out, can be kept busy for ever by a short pattern,
and most of them hold Python's lock meanwhile. So it is the engine that checks inputs of tools.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from nacre.tools.core.workspace import FileProblem
from nacre.tools.input_checks.pattern_size import states_of

if TYPE_CHECKING:
    import jsonschema_rs

_MAX_STATES: Final = 400
_MAX_COMPILED_BYTES: Final = 1 << 18
# One step takes some 30 ns at worst, and nobody else can run during one line.
_MAX_STEPS_OF_A_LINE: Final = 1_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class LinePattern:
    """A pattern that is ready."""

    most_characters: int
    """How long a line may be, so that it does not take long."""
    _validator: jsonschema_rs.Validator

    @classmethod
    def compile(cls, pattern: str, *, is_case_ignored: bool) -> LinePattern:
        """Raises FileProblem for what is none, or too large."""
        states = states_of(pattern)
        if states > _MAX_STATES:
            raise FileProblem(
                f"query is a regular expression of about {states} parts, repetitions written out; "
                f"at most {_MAX_STATES} can be searched for"
            )
        return cls(
            most_characters=_MAX_STEPS_OF_A_LINE // states,
            _validator=_validator_of(f"(?i:{pattern})" if is_case_ignored else pattern),
        )

    def is_in(self, line: str) -> bool:
        return self._validator.is_valid(line)


def _validator_of(pattern: str) -> jsonschema_rs.Validator:
    import jsonschema_rs

    options = jsonschema_rs.RegexOptions(
        size_limit=_MAX_COMPILED_BYTES, dfa_size_limit=_MAX_COMPILED_BYTES
    )
    try:
        return jsonschema_rs.validator_for(
            {"pattern": pattern}, offline=True, pattern_options=options, validate_formats=False
        )
    except ValueError as error:
        raise FileProblem(
            "query is not a regular expression that can be searched for: it is broken or too "
            "large, or looks around or back (`(?=`, `\\1`), which is not possible here"
        ) from error
