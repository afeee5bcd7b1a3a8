"""Distinct types for ids, and how new ones are made."""

import os
from typing import NewType

# Models know it as `runId`: the contract's name, which is not the id of an agent's run.
CellId = NewType("CellId", str)

# Knowing a cell's id is part of being allowed to resume it, so ids must not be guessable.
_RANDOM_BYTES = 16


def new_cell_id() -> CellId:
    # What `secrets.token_hex` and `uuid4` come down to, without importing either.
    return CellId(f"run_{os.urandom(_RANDOM_BYTES).hex()}")
