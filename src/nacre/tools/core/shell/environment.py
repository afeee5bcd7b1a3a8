"""The variables that a command is given: few, so that no secret of the gateway is among them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_PASSED_ON: Final = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER")
_DEFAULTS: Final = {"PATH": os.defpath, "LANG": "C.UTF-8"}


def command_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What of an environment a command gets to see."""
    passed_on = {name: environment[name] for name in _PASSED_ON if environment.get(name)}
    return {**_DEFAULTS, **passed_on}
