"""Questions of an agent in Codex, at the command line."""

import io
import os
import pty
import sys
from collections.abc import Generator
from contextlib import contextmanager

import pytest
from anyio.from_thread import start_blocking_portal

from nacre.agent import AgentRun, RunEvent
from nacre.cli import terminal_input
from nacre.cli.agent_view import LiveView
from nacre.json_types import JsonObject
from nacre.testing import Call, Say, ScriptedProvider
from tests.cli.agent_setup import configure_agents
from tests.cli.pseudo_terminal import person_at
from tests.cli.surroundings import Surroundings

QUESTION: JsonObject = {
    "questions": [
        {
            "id": "colour",
            "header": "Colour",
            "question": "Which one?",
            "options": [
                {"label": "Red", "description": "like a rose"},
                {"label": "Blue", "description": "like the sea"},
            ],
        }
    ]
}


@contextmanager
def model_in_codex(here: Surroundings) -> Generator[ScriptedProvider]:
    """A model in Codex that asks a question, and then has an answer."""
    script = [Call("request_user_input", QUESTION), Say("I see.")]
    with (
        start_blocking_portal("asyncio") as portal,
        portal.wrap_async_context_manager(ScriptedProvider(script)) as provider,
    ):
        server = {
            "baseUrl": provider.openai_url,
            "apiKey": "none",
            "api": "openai-responses",
            "agentRuntime": {"id": "codex"},
        }
        configure_agents(
            here,
            models={"providers": {"local": server}},
            agents={"defaults": {"workspace": str(here.project), "model": "local/gpt-5.5"}},
        )
        yield provider


def test_the_next_line_of_a_chat_answers_the_question(
    here: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = io.BytesIO(b"paint it\n2\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(content, encoding="utf-8"))
    with model_in_codex(here) as provider:
        status, out, err = here.nacre("chat")
    assert (status, out) == (0, "I see.\n")
    assert "[Colour] Which one?\n   1) Red: like a rose\n   2) Blue: like the sea\n" in err
    assert provider.requests[-1].last_result == {"answers": {"colour": {"answers": ["Blue"]}}}
    assert len(provider.requests) == 2


@pytest.mark.parametrize("command", [("run", "paint it"), ("chat",)])
def test_a_person_answers_at_the_terminal(here: Surroundings, command: tuple[str, ...]) -> None:
    is_chat = command == ("chat",)
    with model_in_codex(here) as provider, person_at(*command) as person:
        if is_chat:
            person.reads("/quit leaves")
            person.types("paint it\n")
        person.reads("2) Blue: like the sea")
        person.reads("Answer with the number")
        person.types("the green one\n")
        person.reads("I see.")
        if is_chat:
            person.reads("completed in")
            person.types("/quit\n")
        assert person.leaves() == 0
    answers = {"answers": {"colour": {"answers": ["the green one"]}}}
    assert provider.requests[-1].last_result == answers


def test_an_answer_that_is_typed_as_soon_as_the_question_is_shown_counts(
    here: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal, inner = pty.openpty()
    for end in (terminal, inner):
        os.set_blocking(end, False)
    show = LiveView.add

    def show_and_type(view: LiveView, run: AgentRun, event: RunEvent) -> None:
        show(view, run, event)
        if event.kind == "input.requested":
            os.write(terminal, b"the green one\n")

    monkeypatch.setattr(LiveView, "add", show_and_type)
    monkeypatch.setattr(terminal_input, "is_stderr_terminal", lambda: True)
    try:
        with os.fdopen(inner) as keyboard, model_in_codex(here) as provider:
            monkeypatch.setattr(sys, "stdin", keyboard)
            status, out, _ = here.nacre("run", "paint it")
    finally:
        os.close(terminal)
    assert (status, out) == (0, "I see.\n")
    answers = {"answers": {"colour": {"answers": ["the green one"]}}}
    assert provider.requests[-1].last_result == answers


def test_without_a_terminal_the_question_has_no_answer(here: Surroundings) -> None:
    with model_in_codex(here) as provider:
        status, out, err = here.nacre("run", "paint it")
    assert (status, out) == (0, "I see.\n")
    assert "the question is withdrawn" in err
    assert provider.requests[-1].last_result == {"answers": {}}
