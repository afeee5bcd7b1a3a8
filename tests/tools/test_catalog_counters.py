"""Counters of a run: what is counted, and that they stay small."""

from nacre.tools.catalog import MAX_COUNTED_IDS, OTHER_IDS, CatalogCounters


def test_calls_are_counted_by_id() -> None:
    counters = CatalogCounters(searches=2, describes=1)
    for tool_id in ("openclaw:core:read", "mcp:github:issue", "openclaw:core:read"):
        counters.count_call(tool_id)
    assert counters.to_json() == {
        "searches": 2,
        "describes": 1,
        "calls": 3,
        "called": {"openclaw:core:read": 2, "mcp:github:issue": 1},
    }


def test_ids_beyond_the_bound_are_counted_together_and_known_ones_on_their_own() -> None:
    counters = CatalogCounters()
    for number in range(MAX_COUNTED_IDS + 10):
        counters.count_call(f"openclaw:core:tool_{number}")
    counters.count_call("openclaw:core:tool_0")
    assert counters.calls == MAX_COUNTED_IDS + 11
    assert (counters.called["openclaw:core:tool_0"], counters.called[OTHER_IDS]) == (2, 10)
    assert len(counters.called) == MAX_COUNTED_IDS + 1


def test_what_was_told_does_not_change_when_counting_goes_on() -> None:
    counters = CatalogCounters()
    told = counters.to_json()
    counters.count_call("openclaw:core:read")
    assert told["called"] == {}
