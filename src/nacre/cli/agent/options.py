"""Options that `nacre run` and `nacre chat` share."""

from typing import Annotated

import typer

AgentOption = Annotated[
    str | None,
    typer.Option(
        "--agent", metavar="ID", help="Which agent. [default: the configured one]",
        show_default=False,
    ),
]  # fmt: skip

ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model", metavar="PROVIDER/MODEL", help="Instead of the agent's own.", show_default=False
    ),
]

SessionOption = Annotated[
    str | None,
    typer.Option(
        "--session",
        metavar="KEY",
        help="Go on in this session: a name of yours, which begins one, or a session's id.",
        show_default=False,
    ),
]
