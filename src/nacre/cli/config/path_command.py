"""`config path`: which file it is."""

from nacre.cli.options import ConfigOption
from nacre.cli.output import ExitStatus, Printer, say


def path_command(config: ConfigOption = None) -> int:
    """Print the path of the configuration, whether it is there or not."""
    from nacre.cli.config.document import config_file
    from nacre.cli.config.origins import origin_text

    file = config_file(config)
    printer = Printer()
    printer.write(f"{file.path}\n")
    say(origin_text(file))
    return printer.problem or ExitStatus.COMPLETED
