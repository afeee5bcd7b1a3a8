"""Distinct types for ids, and how new ones are made."""

import os
from typing import NewType

RunId = NewType("RunId", str)

# Knowing a run id is part of being allowed to resume it, so ids must not be guessable.
_RANDOM_BYTES = 16


def new_run_id() -> RunId:
    # What `secrets.token_hex` and `uuid4` come down to, without importing either.
    return RunId(f"run_{os.urandom(_RANDOM_BYTES).hex()}")
