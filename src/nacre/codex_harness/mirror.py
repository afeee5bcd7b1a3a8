"""The mirror of a thread in its session: names of messages, and turns that were not stored."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from nacre.json_types import get_objects, get_text
from nacre.messages import AssistantMessage, TextPart, ThinkingPart, UserMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.json_types import JsonObject
    from nacre.messages import Message
    from nacre.storage import Store, TurnRecord

MIN_ID_VERSION: Final = (0, 150, 0)
"""The first version of Codex that takes and reports ids of messages, and has context of turns."""
PROMPT: Final = "prompt"
ANSWER: Final = "assistant"
# Turns that are searched for those that were interrupted.
_MAX_TURNS: Final = 20


def make_identity(thread_id: str, turn_id: str, kind: str) -> str:
    """The name of a message in a thread: a session stores each once, however often it is mirrored.

    It does not depend on the text, which may be redacted, nor on the position.
    """
    return f"codex-app-server:{thread_id}:{turn_id}:{kind}"


def make_client_id(run_id: str, kind: str) -> str:
    """The name that Codex is given for a message of the user, and reports with its item."""
    return f"{run_id}:{kind}"


def make_answer(
    text: str, *, thoughts: Sequence[str] = (), plans: Sequence[str] = (), identity: str = ""
) -> AssistantMessage | None:
    """The last answer of a turn, with light records of reasoning and plans; None without any."""
    thinking = "\n\n".join(thoughts)
    parts = (
        *([ThinkingPart(text=thinking)] if thinking else []),
        *(TextPart(text=plan) for plan in plans if plan),
        *([TextPart(text=text)] if text else []),
    )
    return AssistantMessage(parts=parts, identity=identity) if parts else None


async def mirror_interrupted(store: Store, session_id: str, thread: JsonObject) -> None:
    """Store what a thread knows of turns whose process ended before it could store them."""
    turns = await store.turns(session_id, limit=_MAX_TURNS)
    interrupted = {it.run_id: it for it in turns if it.status == "interrupted"}
    for native in get_objects(thread, "turns") if interrupted else ():
        record = interrupted.get(_find_run(native))
        if record is not None:
            messages = _read_messages(native, record, get_text(thread, "id"))
            await store.add_to_interrupted(record.run_id, messages)


def _find_run(native: JsonObject) -> str:
    """The run that has started a native turn; empty if it was none of Nacre."""
    for item in get_objects(native, "items"):
        run_id, _, kind = get_text(item, "clientId").rpartition(":")
        if item.get("type") == "userMessage" and kind == PROMPT:
            return run_id
    return ""


def _read_messages(native: JsonObject, record: TurnRecord, thread_id: str) -> list[Message]:
    turn_id = get_text(native, "id")
    found: list[Message] = []
    text = ""
    thoughts: list[str] = []
    for item in get_objects(native, "items"):
        match item.get("type"):
            case "userMessage":
                kind = get_text(item, "clientId").rpartition(":")[2]
                said = _read_user_message(item)
                if kind == PROMPT and isinstance(record.prompt, UserMessage):
                    # Codex has earlier messages and the context of the turn in front of it.
                    said = record.prompt
                identity = make_identity(thread_id, turn_id, kind or get_text(item, "id"))
                found.append(replace(said, identity=identity))
            case "agentMessage" if item.get("phase") != "commentary":
                text = get_text(item, "text") or text
            case "reasoning":
                thoughts += read_texts(item, "summary")
            case _:
                pass
    answer = make_answer(
        text, thoughts=thoughts, identity=make_identity(thread_id, turn_id, ANSWER)
    )
    return [*found, *([replace(answer, model=record.model)] if answer else [])]


def read_texts(members: JsonObject, key: str) -> list[str]:
    """The texts in a member that is a list, without empty ones."""
    value = members.get(key)
    texts = [it for it in value if isinstance(it, str)] if isinstance(value, list) else []
    return [it for it in texts if it.strip()]


def _read_user_message(item: JsonObject) -> UserMessage:
    texts = [get_text(part, "text") for part in get_objects(item, "content")]
    return UserMessage(parts=tuple(TextPart(text=text) for text in texts if text))
