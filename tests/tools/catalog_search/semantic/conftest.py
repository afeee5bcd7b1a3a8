"""Semantic search with a deterministic model and a cache of its own for each test."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from nacre.tools.catalog_search import index
from nacre.tools.catalog_search.semantic import embeddings
from nacre.tools.catalog_search.semantic.embeddings import BackgroundThread
from nacre.tools.catalog_search.semantic.text_models import TextModel
from nacre.tools.catalog_search.semantic.vector_store import VectorStore
from tests.tools.catalog_search.semantic.fake_model import FakeModel


@pytest.fixture
def fake_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeModel]:
    """The one model that is installed, while search is switched on."""
    model = FakeModel("meeting calendar", "selfie polaroid")
    stores = threading.local()

    def models() -> list[TextModel]:
        return [model]

    def store() -> VectorStore:
        if not hasattr(stores, "store"):
            stores.store = VectorStore(tmp_path / "cache")
        return stores.store

    thread = BackgroundThread("test-semantic-search", patience_seconds=0)
    monkeypatch.delenv("NACRE_SEMANTIC_SEARCH")
    monkeypatch.setattr(embeddings, "_models", models)
    monkeypatch.setattr(embeddings, "_store", store)
    monkeypatch.setattr(embeddings, "_thread", thread)
    kept = index._ranked_texts  # pyright: ignore[reportPrivateUsage]
    kept.clear()
    yield model
    thread.end()
    kept.clear()
