"""`nacre tools search`: the ranked table, and why each tool ranks there."""

import json
import re

import pytest

from nacre.tools import CatalogIndex
from tests.cli.mcp.setup import Surroundings, small_server
from tests.cli.tools.setup import WITHOUT_CORE, own_tools

NAMES = ("read_file", "write_file", "create_issue", "list_branches")


def test_results_come_in_the_order_of_their_rank(surroundings: Surroundings) -> None:
    surroundings.configure({"one": small_server(*NAMES)}, tools=WITHOUT_CORE)

    status, out, err = surroundings.nacre("tools", "search", "read", "a", "file")

    rows = [line.split() for line in out.splitlines()]
    assert rows[0] == ["tool", "title", "description"]
    assert rows[1] == ["1", "mcp:one:read_file", "Read_File", "Does", "read_file."]
    assert rows[2][:2] == ["2", "mcp:one:write_file"]
    assert (status, err) == (0, "")


def test_limit_is_the_persons_or_that_of_the_settings(surroundings: Surroundings) -> None:
    names = [f"read_{number}" for number in range(12)]
    surroundings.configure(
        {"one": small_server(*names)}, tools={"toolSearch": {"searchDefaultLimit": 3}}
    )

    _, configured, _ = surroundings.nacre("tools", "search", "read", "--json")
    _, given, _ = surroundings.nacre("tools", "search", "read", "--limit", "11", "--json")

    assert len(json.loads(configured)["results"]) == 3
    assert len(json.loads(given)["results"]) == 11


def test_explanation_tells_terms_fields_and_shares_of_the_score(
    surroundings: Surroundings,
) -> None:
    surroundings.configure({"one": small_server(*NAMES)})

    status, out, _ = surroundings.nacre("tools", "search", "create an issue", "--explain")

    first, sentence, *reasons = out.split("\n\n")[0].splitlines()
    assert re.fullmatch(r"1\. mcp:one:create_issue  \(score [0-9.]+\)", first)
    assert sentence == "   Does create_issue."
    assert any(re.fullmatch(r" +[0-9.]+ %  '\w+' in its name", reason) for reason in reasons)
    shares = [float(reason.split(" %")[0]) for reason in reasons]
    assert abs(sum(shares) - 100) < 1
    assert status == 0


def test_explanation_as_json_adds_up_to_the_score(surroundings: Surroundings) -> None:
    surroundings.configure({"one": small_server(*NAMES)})

    _, document, _ = surroundings.nacre("tools", "search", "read_file", "--explain", "--json")
    _, plain, _ = surroundings.nacre("tools", "search", "read_file", "--json")

    best = json.loads(document)["results"][0]
    assert best["id"] == "mcp:one:read_file"
    assert best["parts"][0] == {"kind": "exact", "weight": 1000.0}
    assert abs(sum(part["weight"] for part in best["parts"]) - best["score"]) < 0.01
    assert "score" not in json.loads(plain)["results"][0]


def test_exact_name_says_so(surroundings: Surroundings) -> None:
    own = own_tools(surroundings, "exact_tools")

    _, out, _ = surroundings.nacre("tools", "search", "greet", "--explain", "-t", own)

    assert " %  exact id or name\n" in out


def test_denied_tools_are_not_found(surroundings: Surroundings) -> None:
    surroundings.configure({"one": small_server(*NAMES)}, tools={"deny": ["read_*"]})

    _, document, _ = surroundings.nacre("tools", "search", "read file", "--json")

    found = [result["id"] for result in json.loads(document)["results"]]
    assert "mcp:one:write_file" in found
    assert "mcp:one:read_file" not in found


def test_nothing_that_fits_is_said(surroundings: Surroundings) -> None:
    surroundings.configure({}, tools=WITHOUT_CORE)
    own = own_tools(surroundings, "unfit_tools")

    status, out, err = surroundings.nacre("tools", "search", "zzzqqq", "-t", own)

    assert (status, out) == (0, "")
    assert err == "nacre: no match among 4 tools; list them with `nacre tools list`\n"


@pytest.mark.parametrize("options", [(), ("--wait",)])
def test_what_tools_mean_is_waited_for_and_its_absence_is_said(
    options: tuple[str, ...], surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = own_tools(surroundings, f"meant_tools_{len(options)}")
    waited: list[float] = []

    def too_short(_index: CatalogIndex, timeout_seconds: float) -> bool:
        waited.append(timeout_seconds)
        return timeout_seconds > 60

    monkeypatch.setattr(CatalogIndex, "wait_for_meanings", too_short)
    status, out, err = surroundings.nacre("tools", "search", "greet", "-t", own, *options)

    assert (status, len(waited), "openclaw:core:greet" in out) == (0, 1, True)
    assert ("searched by words alone" in err) is (options == ())


def test_servers_that_were_not_searched_are_told(surroundings: Surroundings) -> None:
    surroundings.configure(
        {"one": small_server("read_file"), "exits": small_server("--exit")}, tools=WITHOUT_CORE
    )

    status, out, err = surroundings.nacre("tools", "search", "read", "--json")

    document = json.loads(out)
    assert (status, len(document["results"]), list(document["problems"])) == (1, 1, ["exits"])
    assert "nacre: the tools of exits are missing: " in err


def test_a_query_is_needed(surroundings: Surroundings) -> None:
    status, _, err = surroundings.nacre("tools", "search")

    assert (status, "nacre tools search --help" in err) == (2, True)
