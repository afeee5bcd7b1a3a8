"""Checks inputs of tools against JSON Schemas. Both are untrusted, so each check is bounded."""

from nacre.tools.input_checks.validation import (
    InputValidators,
)

__all__ = [
    "InputValidators",
]
