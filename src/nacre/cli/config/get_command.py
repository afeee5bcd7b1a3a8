"""`config get`: one setting."""

from typing import TYPE_CHECKING, cast

from nacre.cli.options import ConfigOption, JsonOption, PathArgument
from nacre.cli.output import ExitStatus, Printer, say

if TYPE_CHECKING:
    from nacre.json_types import JsonValue


def get_command(
    path: PathArgument, config: ConfigOption = None, is_json: JsonOption = False
) -> int:
    """Print one setting, or a part of the configuration.

    Text is printed as it is, all else as JSON. A setting that is not there has its default. Secrets
    are shown as ***, references such as ${NAME} as they are.
    """
    from nacre.cli.config.checks import check, misplaced_in
    from nacre.cli.config.defaults import defaults_at
    from nacre.cli.config.document import keys_of, not_there, read_document
    from nacre.cli.config.hidden_secrets import redact_secrets
    from nacre.config.paths import MISSING, path_from_keys, value_at

    keys, document = keys_of(path), read_document(config)
    misplaced = misplaced_in(document.members, document.file.path)
    value = value_at(redact_secrets(document.members, misplaced=misplaced), keys)
    if value is MISSING:
        settings = check(document.members, document.file.path).settings
        value = defaults_at(path_from_keys(keys), settings)
        if value is MISSING:
            raise not_there(path, document, settings)
        say(f"{path} is not set in {document.file.path}; this is its default")
    printer = Printer()
    if isinstance(value, str) and not is_json:
        printer.write(f"{value}\n")
    else:
        printer.write_json(cast("JsonValue", value), is_indented=not is_json or printer.is_terminal)
    return printer.problem or ExitStatus.COMPLETED
