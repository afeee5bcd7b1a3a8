"""Files of replies and uploads, on every kind of database."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from nacre.errors import MediaError, StorageError
from nacre.storage import MediaRecord, media_store

if TYPE_CHECKING:
    from nacre.storage import Store


async def test_media_are_read_with_their_bytes_and_go_with_their_session(store: Store) -> None:
    content = bytes(range(256)) * 400
    await store.add_session(id="s", agent_id="main")
    first = MediaRecord(
        id="media_1",
        session_id="s",
        run_id="run_1",
        name="pearl.png",
        type="image/png",
        size=len(content),
        created=1.0,
    )
    second = replace(first, id="media_2", created=2.0)
    await store.media.add(second, b"later")
    await store.media.add(first, content)

    assert await store.media.find("media_1") == (first, content)
    assert await store.media.of_runs(["run_1", "run_2"]) == [first, second]
    assert await store.media.of_runs([]) == []
    assert await store.media.find("media_3") is None
    assert await store.media.find("\0") is None

    assert await store.delete_session("s")
    assert await store.media.find("media_1") is None
    assert await store.media.of_runs(["run_1"]) == []


async def test_media_of_a_session_that_is_not_stored_are_refused(store: Store) -> None:
    record = MediaRecord(
        id="m", session_id="gone", run_id="r", name="a", type="text/plain", size=1, created=1.0
    )

    with pytest.raises(StorageError):
        await store.media.add(record, b"a")


async def test_an_upload_is_found_until_it_expires(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = MediaRecord(
        id="u1",
        session_id="",
        run_id="",
        name="a.bin",
        type="application/octet-stream",
        size=3,
        created=time.time(),
    )
    await store.media.add_upload(record, b"\0\1\2")
    assert await store.media.find_upload("u1") == (record, b"\0\1\2")
    assert await store.media.find_upload("u2") is None
    assert await store.media.find_upload("\0") is None

    later = time.time() + media_store.UPLOAD_SECONDS + 1
    monkeypatch.setattr(media_store, "now", lambda: later)
    assert await store.media.find_upload("u1") is None
    await store.media.add_upload(replace(record, id="u2", created=later), b"x")
    monkeypatch.undo()
    # Deleted, not only hidden.
    assert await store.media.find_upload("u1") is None
    old = replace(record, id="u3", created=record.created - media_store.UPLOAD_SECONDS)
    await store.media.add_upload(old, b"x")
    assert await store.media.delete_expired_uploads() == 1


async def test_all_uploads_together_have_a_limit(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(media_store, "_MAX_UPLOADS_BYTES", 10)
    record = MediaRecord(
        id="u1", session_id="", run_id="", name="a.txt", type="text/plain", size=6,
        created=time.time() - media_store.UPLOAD_SECONDS + 60,
    )  # fmt: skip
    await store.media.add_upload(record, b"123456")
    new = replace(record, id="u2", created=time.time())
    with pytest.raises(MediaError, match=r"a\.txt has 6 bytes.* have 6; together they may have 10"):
        await store.media.add_upload(new, b"123456")
    assert await store.media.find_upload("u2") is None
    # An expired one does not count.
    later = time.time() + 120
    monkeypatch.setattr(media_store, "now", lambda: later)
    await store.media.add_upload(new, b"123456")
    assert await store.media.find_upload("u2") is not None
