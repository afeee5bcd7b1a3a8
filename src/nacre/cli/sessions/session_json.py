"""Sessions, turns and messages as JSON, with the keys that the rest of Nacre's JSON has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nacre.storage.message_codec import message_to_json

if TYPE_CHECKING:
    from nacre.cli.sessions.whole_session import WholeSession, WholeTurn
    from nacre.json_types import JsonObject
    from nacre.storage import SessionRecord


def session_to_json(session: SessionRecord) -> JsonObject:
    return {
        "id": session.id,
        "agentId": session.agent_id,
        "key": session.key,
        "channel": session.channel,
        "sender": session.sender,
        "title": session.title,
        "createdAt": session.created,
        "updatedAt": session.updated,
        "turnCount": session.turn_count,
        "messageCount": session.message_count,
    }


def whole_session_to_json(whole: WholeSession) -> JsonObject:
    return {
        **session_to_json(whole.session),
        "earlierTurns": whole.earlier_turns,
        "turns": [_turn_to_json(turn) for turn in whole.turns],
    }


def _turn_to_json(turn: WholeTurn) -> JsonObject:
    record = turn.record
    return {
        "runId": record.run_id,
        "status": record.status,
        "model": record.model,
        "surface": record.surface,
        "usage": record.usage.to_json(),
        "error": record.error,
        "startedAt": record.started,
        "endedAt": record.ended,
        "data": record.data,
        "messages": [message_to_json(message) for message in turn.messages],
        "calls": [call.to_json() for call in turn.calls],
    }
