"""`config set`: one setting more, or another value for it."""

from typing import TYPE_CHECKING, Annotated, cast

import typer

from nacre.cli.options import ConfigOption, PathArgument
from nacre.cli.output import ExitStatus, UsageProblem, say, warn

if TYPE_CHECKING:
    from nacre.json_types import JsonValue


def set_command(
    path: PathArgument,
    value: Annotated[
        str, typer.Argument(metavar="VALUE", help="JSON5, else text.", show_default=False)
    ],
    config: ConfigOption = None,
) -> int:
    """Write one setting.

    Comments and all else in the file stay. The result is checked as a whole first; if it would be
    wrong, nothing is written. One more item for a list goes to its end: agents.list[2].

    A value that is no JSON5 is text, so quotes are needed only for text that looks like a number,
    true, false or null: '"007"'.
    """
    from nacre.cli.config.changes import change_file
    from nacre.cli.config.document import config_file, keys_of
    from nacre.cli.config.hidden_secrets import is_plain_secret
    from nacre.cli.config.shorthands import with_setting

    keys, file = keys_of(path), config_file(config)
    if isinstance(keys[0], int):
        raise UsageProblem(f"{path} begins with a number; a configuration is no list")
    parsed = _parse_value(value)
    change_file(file.path, lambda text: with_setting(text, keys, parsed, path=str(file.path)))
    if is_plain_secret(str(keys[-1]), parsed):
        warn(
            f"the value of {path} now stands in {file.path}; to keep it out, write a reference "
            "such as ${NAME} in its place"
        )
    say(f"set {path} in {file.path}")
    return ExitStatus.COMPLETED


def _parse_value(value: str) -> "JsonValue":
    from nacre.config.json5_text import parse_json5
    from nacre.errors import ConfigError

    try:
        return cast("JsonValue", parse_json5(value, path="VALUE"))
    except ConfigError:
        return value
