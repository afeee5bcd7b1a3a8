"""The configuration: its text and values without secrets, its schema, and changes to the file."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

import anyio.to_thread
from fastapi import APIRouter
from pydantic import ConfigDict, Field, JsonValue

from nacre.config import (
    TOKEN_VARIABLE,
    ConfigFile,
    change_config_text,
    check_auth,
    config_schema,
    keys_from,
    object_at,
    parse_json5,
    read_config_text,
    read_system,
    with_setting,
    without_member,
)
from nacre.errors import ConfigError, MissingReferenceError
from nacre.gateway.errors import ApiError
from nacre.gateway.routing import (
    BEARER,
    GatewayState,
    JsonRoute,
    OpaqueMap,
    RequestModel,
    ResponseModel,
    State,
    error_responses,
)
from nacre.plugins import check_plugins, find_misplaced
from nacre.telemetry.config_redaction import (
    redact_config_text,
    redact_secrets,
    restore_secrets,
)


class ConfigProblemInfo(ResponseModel):
    """A problem of the configuration."""

    path: str
    message: str


class ConfigResponse(ResponseModel):
    """The configuration file. Secrets are shown as `***`, references as they are."""

    path: str
    hash: str
    """The `baseHash` for a change."""
    text: str
    """Empty if the file is not valid JSON5."""
    values: OpaqueMap
    """The members of the file."""
    problems: tuple[ConfigProblemInfo, ...]
    schema_url: str = "/api/config/schema"


class ConfigChangeInfo(RequestModel):
    """A change of one setting."""

    path: Annotated[str, Field(min_length=1, max_length=1000)]
    """Such as `tools.codeMode.timeoutMs` or `agents.list[0].model`."""
    value: JsonValue = None
    """Null removes the setting, so that its default applies."""


class ChangeConfigRequest(RequestModel):
    """A new text of the file, or changes of single settings. Hidden values stay as they were."""

    base_hash: Annotated[str, Field(min_length=1, max_length=100)]
    """The `hash` of the file that you have changed."""
    text: Annotated[str, Field(max_length=1_000_000)] | None = None
    changes: Annotated[tuple[ConfigChangeInfo, ...], Field(max_length=200)] | None = None

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [
                {"required": ["text"], "properties": {"text": {"type": "string"}}},
                {"required": ["changes"], "properties": {"changes": {"type": "array"}}},
            ]
        }
    )


_CHANGED: Final = "the file has changed since you read it; read it again, and repeat your change"

router = APIRouter(
    prefix="/api/config", tags=["configuration"], route_class=JsonRoute, dependencies=[BEARER]
)


@router.get("", summary="Get the configuration", responses=error_responses(404))
async def get_config(state: State) -> ConfigResponse:
    """Get the text and the values of the config file, and its problems."""
    return await anyio.to_thread.run_sync(_read, _file_of(state))


@router.get("/schema", summary="Get the schema of the configuration", responses=error_responses())
async def get_config_schema() -> OpaqueMap:
    """Get the JSON Schema of the configuration."""
    return await anyio.to_thread.run_sync(config_schema)


@router.put("", summary="Change the configuration", responses=error_responses(404, 409, 415))
async def change_config(body: ChangeConfigRequest, state: State) -> ConfigResponse:
    """Write the config file, if the result is valid. Comments stay. The gateway applies the change
    within two seconds."""
    if (body.text is None) == (body.changes is None):
        raise ApiError(422, "give either `text` or `changes`", path="body")
    file = _file_of(state)
    await anyio.to_thread.run_sync(_write, file, body)
    return await anyio.to_thread.run_sync(_read, file)


def _file_of(state: GatewayState) -> ConfigFile:
    if state.config_file is None:
        raise ApiError(404, "this gateway was started without a config file")
    return state.config_file


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _read(file: ConfigFile) -> ConfigResponse:
    try:
        text = read_config_text(file.path)
    except ConfigError as error:
        raise ApiError(500, str(error), code="config_invalid") from None
    shown, values, problems = "", dict[str, JsonValue](), list[ConfigError]()
    try:
        document = _parse(text, file.path)
        problems = _find_problems(document, file.path)
        misplaced = find_misplaced(document, file.path)
        shown = redact_config_text(text, path=str(file.path), misplaced=misplaced)
        values = redact_secrets(document, misplaced=misplaced)
    except ConfigError as error:
        problems = [error]
    return ConfigResponse(
        path=str(file.path),
        hash=_hash(text),
        text=shown,
        values=values,
        problems=tuple(ConfigProblemInfo(path=it.path, message=it.problem) for it in problems),
    )


def _write(file: ConfigFile, body: ChangeConfigRequest) -> None:
    """Change the file under its lock. Raises ApiError."""

    def change(before: str) -> str:
        if _hash(before) != body.base_hash:
            raise ApiError(409, _CHANGED, path="body.baseHash")
        after = _apply(before, body, file.path)
        _check(before, after, file.path)
        return after

    try:
        change_config_text(file.path, change)
    except ConfigError as error:
        raise ApiError(422, str(error), path=error.path) from None


def _apply(before: str, body: ChangeConfigRequest, path: Path) -> str:
    text = before if body.text is None else body.text
    for item in body.changes or ():
        keys = keys_from(item.path)
        if not keys or isinstance(keys[0], int):
            raise ConfigError(item.path, "is not the path of a setting")
        if item.value is None:
            text = without_member(text, keys, path=str(path)) or text
        else:
            text = with_setting(text, keys, item.value, path=str(path))
    try:
        misplaced = find_misplaced(_parse(before, path), path)
    except ConfigError:
        # The file is broken, and this text replaces it. It has no secrets to restore.
        return text
    return restore_secrets(text, before, path=str(path), misplaced=misplaced)


def _check(before: str, after: str, path: Path) -> None:
    """Raise ConfigError for a problem that the file did not have before."""
    faults = [it for it in _find_problems(_parse(after, path), path) if not _may_be_fine(it)]
    if not faults:
        return
    try:
        old = {str(it) for it in _find_problems(_parse(before, path), path)}
    except ConfigError:
        old = set[str]()
    for fault in faults:
        if str(fault) not in old:
            raise fault


def _may_be_fine(problem: ConfigError) -> bool:
    """A missing variable or file may exist when it is needed."""
    return isinstance(problem, MissingReferenceError) or problem.path == TOKEN_VARIABLE


def _parse(text: str, path: Path) -> Mapping[str, object]:
    if not text.strip():
        raise ConfigError(str(path), "is empty; for all defaults: {}")
    return object_at(parse_json5(text, path=str(path)), str(path))


def _find_problems(document: Mapping[str, object], path: Path) -> list[ConfigError]:
    found = read_system(document, environment=os.environ, folder=path.absolute().parent)
    problems = [*found.problems]
    reported = {it.path for it in problems}
    plugins = check_plugins(found.config.plugins).problems
    problems += [it for it in plugins if it.path not in reported]
    try:
        check_auth(found.config.gateway, os.environ)
    except ConfigError as error:
        if error.path not in reported:
            problems.append(error)
    return problems
