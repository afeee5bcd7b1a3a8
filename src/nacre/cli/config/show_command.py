"""`config show`: the configuration, without its secrets."""

from typing import TYPE_CHECKING

from nacre.cli.options import ConfigOption, JsonOption
from nacre.cli.output import ExitStatus, Printer, say

if TYPE_CHECKING:
    from nacre.json_types import JsonObject


def show_command(config: ConfigOption = None, is_json: JsonOption = False) -> int:
    """Print the configuration as JSON, and where it was found.

    Secrets are shown as ***, references such as ${NAME} as they are. With --json the document also
    says which file it is.
    """
    from nacre.cli.config.checks import misplaced_in
    from nacre.cli.config.document import read_document
    from nacre.cli.config.hidden_secrets import redact_secrets
    from nacre.cli.config.origins import origin_text

    document = read_document(config)
    misplaced = misplaced_in(document.members, document.file.path)
    shown = redact_secrets(document.members, misplaced=misplaced)
    printer = Printer()
    if is_json:
        whole: JsonObject = {
            "file": str(document.file.path),
            "origin": document.file.origin,
            "exists": document.file.path.exists(),
            "config": shown,
        }
        printer.write_json(whole, is_indented=printer.is_terminal)
    else:
        say(origin_text(document.file))
        printer.write_json(shown, is_indented=True)
    return printer.problem or ExitStatus.COMPLETED
