"""What one process finds by meaning, every other finds in the same order."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from nacre.tools.catalog_search.semantic.text_models import installed_file

SECONDS = 60

SEARCH = """
import json
from nacre.tools import Tool, index_of
from nacre.tools.catalog import build_catalog

async def nothing(input, call):
    return None

TEXTS = {
    "delete_event": "Removes an entry from the calendar.",
    "add_event": "Puts an entry into the calendar.",
    "crop_image": "Cuts a picture.",
    "list_files": "Shows what is in a folder.",
    "send_mail": "Writes to somebody.",
    "get_weather": "Tells whether it will rain.",
}
tools = [Tool(name=name, description=text, execute=nothing) for name, text in TEXTS.items()]
index = index_of(build_catalog(tools))
assert index.wait_for_meanings(50) and index.knows_meanings
queries = ("cancel my appointment", "take a selfie", "do I need an umbrella", "write a letter")
found = [[(it.entry.id, it.score) for it in index.explain(query, 8)] for query in queries]
print(json.dumps(found))
"""


def found_by_a_process(cache: Path, *, hash_seed: int) -> list[list[tuple[str, float]]]:
    environment = {**os.environ, "NACRE_CACHE_DIR": str(cache), "PYTHONHASHSEED": str(hash_seed)}
    del environment["NACRE_SEMANTIC_SEARCH"]
    done = subprocess.run(
        [sys.executable, "-c", SEARCH],
        env=environment,
        capture_output=True,
        timeout=SECONDS,
        check=True,
    )
    return json.loads(done.stdout)


def test_scores_are_equal_in_every_process_whoever_made_the_vectors(tmp_path: Path) -> None:
    try:
        installed_file("wordllama", "weights/l2_supercat_256.safetensors")
    except ImportError as missing:
        pytest.skip(str(missing))
    first = found_by_a_process(tmp_path / "one", hash_seed=1)
    with_kept_vectors = found_by_a_process(tmp_path / "one", hash_seed=2)
    with_its_own = found_by_a_process(tmp_path / "other", hash_seed=3)
    assert len(first[0]) > 0
    assert first == with_kept_vectors == with_its_own
