"""Inputs against JSON Schemas: both may be hostile, so every check is bounded beforehand."""

from nacre.tools.input_checks.validation import (
    InputValidators,
)

__all__ = [
    "InputValidators",
]
