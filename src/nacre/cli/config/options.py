"""What several commands of `nacre config` take."""

from typing import Annotated

import typer

PathArgument = Annotated[
    str,
    typer.Argument(
        metavar="PATH", help="Such as gateway.port or agents.list[0].model.", show_default=False
    ),
]
