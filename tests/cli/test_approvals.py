"""`nacre approvals`: answers calls that wait in a gateway."""

import json
import time
from collections.abc import Generator
from urllib.request import Request, urlopen

import pytest

from nacre.private_files import read_private
from tests.cli.agent_setup import WRITE_A_FILE
from tests.cli.nacre_process import PATIENCE_SECONDS, pipe_of, start_nacre
from tests.cli.surroundings import Surroundings

# As JSON; a text of several lines is indented behind a bar.
SHOWN = '"path": "a.txt"\n"content":\n  | one\n  | two\n  | \n'


@pytest.fixture
def url(here: Surroundings) -> Generator[str]:
    """The URL of a gateway with a run that waits for an approval."""
    with start_nacre("gateway", "--port", "0", "--json") as process:
        facts = json.loads(pipe_of(process.stdout).readline())
        token = (read_private(here.home / ".local/share/nacre/gateway-token") or b"").decode()
        headers = {
            "Authorization": f"Bearer {token.strip()}",
            "Content-Type": "application/json",
        }
        body = json.dumps({"text": WRITE_A_FILE}).encode()
        with urlopen(Request(f"{facts['url']}/api/runs", data=body, headers=headers)):
            yield facts["url"]


def pending_id(here: Surroundings, url: str) -> str:
    """The id of the pending approval, which opens soon after the run has started."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        status, out, _ = here.nacre("approvals", "list", "--url", url, "--json")
        assert status == 0
        if pending := json.loads(out)["pending"]:
            return pending[0]["approvalId"]
    raise AssertionError("no approval is pending")


def test_an_approval_is_listed_and_answered(here: Surroundings, url: str) -> None:
    approval = pending_id(here, url)
    _, out, err = here.nacre("approvals", "list", "--url", url)
    assert "`nacre approvals show ID`" in err
    assert out.splitlines()[1].startswith(f"{approval}  openclaw:core:write  ")

    assert here.nacre("approvals", "show", approval, "--url", url) == (0, SHOWN, "")

    answered = here.nacre("approvals", "answer", approval, "deny", "--url", url)
    assert answered == (0, "", f"answered {approval}: deny\n")

    status, _, err = here.nacre("approvals", "answer", approval, "allow-once", "--url", url)
    assert (status, "was answered already" in err) == (1, True)
    status, _, err = here.nacre("approvals", "show", approval, "--url", url)
    assert (status, "was answered already" in err) == (1, True)
    assert not (here.project / "a.txt").exists()


def test_a_gateway_that_does_not_run_is_named(here: Surroundings) -> None:
    status, _, err = here.nacre("approvals", "list", "--url", "http://127.0.0.1:1")
    assert status == 1
    assert err.startswith("nacre: cannot reach the gateway at http://127.0.0.1:1: ")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["yes"], "ANSWER is 'yes'; allowed: allow-once, allow-always, deny, edit"),
        (["edit"], "--input belongs to the answer edit, and edit needs it"),
        (["edit", "--input", "["], "--input is not JSON"),
        (["edit", "--input", "[]"], "--input is not a JSON object"),
    ],
)
def test_an_invalid_answer_is_bad_usage(
    here: Surroundings, arguments: list[str], problem: str
) -> None:
    status, _, err = here.nacre("approvals", "answer", "approval_1", *arguments)
    assert (status, problem in err) == (2, True)


@pytest.mark.parametrize("host", ["127.0.0.1", "192.0.2.1"])
def test_the_configured_token_goes_to_the_configured_gateway_only(
    here: Surroundings, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    token = "0123456789abcdef"
    here.nacre("config", "set", "gateway.auth.token", token)
    here.nacre("config", "set", "gateway.host", host)
    sent: list[str | None] = []

    def refuse(request: Request, *, timeout: float) -> None:
        sent.append(request.get_header("Authorization"))
        raise OSError("not in this test")

    monkeypatch.setattr("nacre.cli.gateway_client.urlopen", refuse)
    here.nacre("approvals", "list")
    here.nacre("approvals", "list", "--url", "http://gateway.example")
    monkeypatch.setenv("NACRE_GATEWAY_TOKEN", "fedcba9876543210")
    here.nacre("approvals", "list", "--url", "http://gateway.example")
    assert sent == [f"Bearer {token}", None, "Bearer fedcba9876543210"]
