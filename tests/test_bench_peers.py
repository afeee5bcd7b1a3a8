"""The report of `make bench-peers`."""

from benchmarks.peers.comparison import Result, ratios, table, to_json
from benchmarks.peers.registry import PEERS

TITLES = {"trivial": "a fresh trivial program, ms"}
LABELS = {"ours": "Nacre", "theirs": "a peer", "missing": "another peer"}


def results() -> dict[str, dict[str, Result]]:
    ours, theirs = Result(), Result()
    for wall in (2.0, 4.0):
        ours.add([wall], 1.0)
        theirs.add([3 * wall], 5.0)
    missing = Result(note="cannot be installed: no such version")
    return {"trivial": {"ours": ours, "theirs": theirs, "missing": missing}}


def test_ratios_compare_values_of_the_same_round() -> None:
    assert ratios([6, 8], [2, 4]) == [3, 2]
    assert ratios([6], [0]) == []


def test_the_table_has_ratios_with_their_spread() -> None:
    lines = table(results(), base="ours", titles=TITLES, labels=LABELS).splitlines()
    assert lines[0] == TITLES["trivial"]
    cells = "a peer 6 6 to 12 5 5.00 3.00 3.00 to 3.00"
    assert " ".join(lines[3].split()) == cells


def test_a_peer_that_is_missing_is_named_with_the_reason() -> None:
    assert table(results(), base="ours", titles=TITLES, labels=LABELS).endswith(
        "-  cannot be installed: no such version"
    )
    found = to_json(results(), base="ours")["trivial"]
    assert found["missing"]["note"] == "cannot be installed: no such version"
    assert found["theirs"]["cpuRatios"] == [5.0, 5.0]


def test_every_peer_says_how_it_isolates_and_what_it_can_do() -> None:
    for peer in PEERS.values():
        assert peer.isolation
        assert peer.engine
        assert peer.suspends
