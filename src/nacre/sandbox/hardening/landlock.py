"""Landlock: no path, no TCP port, no signal and no abstract socket outside can be reached."""

from __future__ import annotations

import ctypes
import os

from nacre.sandbox.hardening import linux
from nacre.sandbox.hardening.report import NotApplied

# The same numbers on every architecture.
_CREATE_RULESET = 444
_RESTRICT_SELF = 446
_CREATE_RULESET_VERSION = 1

# For each version of the interface that added rights: all file system rights known since then.
_FILE_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
_NETWORK_SINCE = 4
_BIND_AND_CONNECT_TCP = 0b11
_SCOPES_SINCE = 6
_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11


def restrict_with_landlock() -> str:
    """Handle every right that this kernel knows, with no rule: so all of them are refused."""
    linux.require_linux()
    try:
        version = linux.system_call(_CREATE_RULESET, 0, 0, _CREATE_RULESET_VERSION)
        _restrict(_ruleset_fields(version))
    except OSError as error:
        raise NotApplied(linux.explain(error)) from error
    return f"version {version}: refuses {', '.join(_refused_rights(version))}"


def _ruleset_fields(version: int) -> list[int]:
    """The fields of `struct landlock_ruleset_attr`, which later versions made longer."""
    fields = [max(rights for since, rights in _FILE_RIGHTS.items() if since <= version)]
    if version >= _NETWORK_SINCE:
        fields.append(_BIND_AND_CONNECT_TCP)
    if version >= _SCOPES_SINCE:
        fields.append(_ABSTRACT_SOCKETS_AND_SIGNALS)
    return fields


def _restrict(fields: list[int]) -> None:
    attributes = (ctypes.c_uint64 * len(fields))(*fields)
    ruleset = linux.system_call(
        _CREATE_RULESET, ctypes.addressof(attributes), ctypes.sizeof(attributes), 0
    )
    try:
        linux.system_call(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _refused_rights(version: int) -> list[str]:
    refused = ["all paths"]
    if version >= _NETWORK_SINCE:
        refused.append("TCP bind and connect")
    if version >= _SCOPES_SINCE:
        refused.append("abstract sockets and signals outside")
    return refused
