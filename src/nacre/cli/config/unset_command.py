"""`config unset`: one setting less."""

from nacre.cli.options import ConfigOption, PathArgument
from nacre.cli.output import ExitStatus, say


def unset_command(path: PathArgument, config: ConfigOption = None) -> int:
    """Remove one setting, so that its default holds.

    Comments and all else in the file stay. If the rest would be wrong without it, it stays, too.
    """
    from nacre.cli.config.changes import change_file
    from nacre.cli.config.checks import check
    from nacre.cli.config.document import keys_of, not_there, read_document
    from nacre.config.json5_edits import without_member
    from nacre.config.paths import MISSING, path_from_keys, value_at

    keys, document = keys_of(path), read_document(config)
    file = document.file.path
    if value_at(document.members, keys) is MISSING:
        if path_from_keys(keys) not in check(document.members, file).known_paths:
            raise not_there(path, document, ())
        say(f"{path} is not set in {file}; there is nothing to remove")
        return ExitStatus.COMPLETED
    change_file(file, lambda text: without_member(text, keys, path=str(file)))
    say(f"removed {path} from {file}")
    return ExitStatus.COMPLETED
