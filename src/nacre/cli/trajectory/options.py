"""What the commands of `nacre trajectory` share."""

from typing import Annotated

import typer

RecordArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN|SESSION",
        help="A run's id, or a session's id or key for all of its runs.",
        show_default=False,
    ),
]
