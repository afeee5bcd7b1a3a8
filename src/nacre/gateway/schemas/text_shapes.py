"""Texts of a certain shape: a pattern for programs, and words for whoever sends something else."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic_core import PydanticCustomError, core_schema

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue


@dataclass(frozen=True, kw_only=True, slots=True)
class TextShape:
    """Stands beside `str` in an `Annotated`. A regular expression is no answer for people."""

    pattern: str
    """The whole text has to match it; told in /openapi.json."""
    words: str
    """What is allowed, after `has to be`."""

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return core_schema.no_info_after_validator_function(self._validate, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {**handler(schema), "pattern": f"^({self.pattern})$"}

    def _validate(self, text: str) -> str:
        if re.fullmatch(self.pattern, text) is None:
            raise PydanticCustomError("text_shape", "has to be {words}", {"words": self.words})
        return text
