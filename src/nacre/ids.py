"""Types of ids, and functions that create them."""

import os
from typing import NewType

# Models see it as `runId`, the contract's name. It is not the id of an agent's run.
CellId = NewType("CellId", str)

# The id is part of the permission to resume a cell, so it must not be guessable.
_RANDOM_BYTES = 16


def new_cell_id() -> CellId:
    # The same as `secrets.token_hex`, without the import.
    return CellId(f"run_{os.urandom(_RANDOM_BYTES).hex()}")
