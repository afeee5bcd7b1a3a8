"""Chat Completions: what a client of OpenAI gets, and what the model is told of what it sent."""

from typing import Any

import openai
import pytest

from nacre.gateway.openai.turns import MAX_MESSAGES
from nacre.messages import Usage
from nacre.testing import Call, End, Say, Think
from tests.gateway.openai.conftest import OpenWorld, user
from tests.gateway.worlds import CODE_MODE

PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9"
    "awAAAABJRU5ErkJggg=="
)
PROGRAM = Call("exec", {"code": "return 1 + 1"})


async def chunks_of(stream: Any) -> list[Any]:
    return [chunk async for chunk in stream]


async def test_an_answer_has_its_text_its_usage_and_the_model_that_was_asked_for(
    open_openai: OpenWorld,
) -> None:
    turn = [Say("Good day."), End(usage=Usage(input_tokens=9, output_tokens=3, cached_tokens=4))]
    async with open_openai([turn]) as world:
        answer = await world.chat("hello")
    (choice,) = answer.choices
    assert (choice.message.role, choice.message.content) == ("assistant", "Good day.")
    assert (choice.finish_reason, choice.message.tool_calls) == ("stop", None)
    assert (answer.object, answer.model) == ("chat.completion", "nacre")
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (9, 3)
    assert (answer.usage.total_tokens, answer.usage.prompt_tokens_details.cached_tokens) == (12, 4)


async def test_a_stream_has_the_role_first_then_words_and_at_last_the_reason(
    open_openai: OpenWorld,
) -> None:
    async with open_openai([Say("one two three")]) as world:
        chunks = await chunks_of(await world.chat(stream=True))
    assert chunks[0].choices[0].delta.role == "assistant"
    words = [chunk.choices[0].delta.content for chunk in chunks[1:-1]]
    assert len(words) > 1
    assert "".join(words) == "one two three"
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [
        *[None] * (len(chunks) - 1),
        "stop",
    ]
    assert len({chunk.id for chunk in chunks}) == 1
    assert all(chunk.usage is None for chunk in chunks)


async def test_usage_is_streamed_to_who_asks_for_it(open_openai: OpenWorld) -> None:
    turn = [Say("hi"), End(usage=Usage(input_tokens=7, output_tokens=2))]
    async with open_openai([turn]) as world:
        options = {"include_usage": True}
        chunks = await chunks_of(await world.chat(stream=True, stream_options=options))
    assert (chunks[-1].choices, chunks[-1].usage.total_tokens) == ([], 9)


async def test_calls_of_the_agents_own_tools_are_not_shown(open_openai: OpenWorld) -> None:
    script = [[Think("hm"), Say("Let me see."), PROGRAM], Say("It is 2.")]
    async with open_openai([*script, *script], CODE_MODE) as world:
        whole = await world.chat("1 + 1?")
        chunks = await chunks_of(await world.chat("1 + 1?", stream=True))
    (choice,) = whole.choices
    assert choice.message.tool_calls is None
    # What was said before the calls and after them is one text for the client.
    assert choice.message.content == "Let me see.\n\nIt is 2."
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == (
        choice.message.content
    )
    assert all(chunk.choices[0].delta.tool_calls is None for chunk in chunks)


async def test_what_the_agent_sends_meanwhile_is_a_part_of_the_text(
    open_openai: OpenWorld,
) -> None:
    async with open_openai([Call("message", {"text": "I begin."}), Say("Done.")]) as world:
        answer = await world.chat()
    assert answer.choices[0].message.content == "I begin.\n\nDone."


async def test_without_a_session_the_requests_own_history_is_the_history(
    open_openai: OpenWorld,
) -> None:
    said = [
        {"role": "system", "content": "Speak plainly."},
        {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
        user("I am Ada."),
        {"role": "assistant", "content": "Hello Ada."},
        user("Who am I?"),
    ]
    async with open_openai([Say("Ada.")]) as world:
        await world.chat(said)
        (request,) = world.model.requests
        sessions = await world.world.system.store.sessions()
    assert "Speak plainly.\n\nBe brief." in request.instructions
    assert [(each.role, each.text) for each in request.messages if each.role != "system"] == [
        ("user", "I am Ada."),
        ("assistant", "Hello Ada."),
        ("user", "Who am I?"),
    ]
    assert sessions == []


@pytest.mark.parametrize("named_by", ["header", "user"])
async def test_in_a_session_only_the_last_message_is_new(
    open_openai: OpenWorld, named_by: str
) -> None:
    options: dict[str, Any] = {"user": "ada"}
    if named_by == "header":
        options = {"extra_headers": {"x-nacre-session-key": "ada"}, "user": "somebody"}
    async with open_openai([Say("Hello Ada."), Say("You are Ada.")]) as world:
        await world.chat("I am Ada.", **options)
        await world.chat([user("something else"), user("Who am I?")], **options)
        kept = await world.world.system.store.session_by_key("main", "ada")
        last = world.model.requests[-1]
    assert [each.text for each in last.messages if each.role != "system"] == [
        "I am Ada.",
        "Hello Ada.",
        "Who am I?",
    ]
    assert kept is not None
    assert (kept.turn_count, kept.channel) == (2, "openai")


async def test_a_session_that_is_begun_takes_over_what_the_client_knows(
    open_openai: OpenWorld,
) -> None:
    before = [user("I am Ada."), {"role": "assistant", "content": "Hello Ada."}]
    async with open_openai([Say("Ada."), Say("Still Ada.")]) as world:
        await world.chat([*before, user("Who am I?")], user="ada")
        await world.chat("And now?", user="ada")
        last = world.model.requests[-1]
    assert [each.text for each in last.messages if each.role != "system"] == [
        "I am Ada.",
        "Hello Ada.",
        "Who am I?",
        "Ada.",
        "And now?",
    ]


async def test_pictures_reach_the_model(open_openai: OpenWorld) -> None:
    parts = [
        {"type": "text", "text": "What is it?"},
        {"type": "image_url", "image_url": {"url": PIXEL, "detail": "low"}},
    ]
    async with open_openai([Say("A pixel.")]) as world:
        await world.chat([{"role": "user", "content": parts}])
        (request,) = world.model.requests
    sent: Any = request.body["messages"]
    assert sent[-1]["content"][1]["image_url"]["url"] == PIXEL


async def test_settings_reach_the_model(open_openai: OpenWorld) -> None:
    async with open_openai([Say("ok"), Say("ok")]) as world:
        await world.chat(max_completion_tokens=70, temperature=0.5, top_p=0.25, stop=["END"])
        await world.chat(
            max_tokens=80, stop="END", seed=7, logit_bias={}, extra_body={"made_up": 1}
        )
        first, second = (request.body for request in world.model.requests)
    assert (first["temperature"], first["top_p"], first["stop"]) == (0.5, 0.25, ["END"])
    assert 70 in (first.get("max_tokens"), first.get("max_completion_tokens"))
    assert 80 in (second.get("max_tokens"), second.get("max_completion_tokens"))


async def test_an_answer_that_was_cut_says_so(open_openai: OpenWorld) -> None:
    turn = [Say("as far as"), End(reason="length")]
    async with open_openai([turn]) as world:
        answer = await world.chat(max_tokens=3)
    assert answer.choices[0].finish_reason == "length"


async def test_the_run_can_be_found_again(open_openai: OpenWorld) -> None:
    async with open_openai([Say("hi"), Say("hi")]) as world:
        raw = await world.client.chat.completions.with_raw_response.create(
            model="nacre", messages=[user("hello")], user="ada"
        )
        run = world.world.system.agents.run(raw.headers["x-nacre-run-id"])
        assert run is not None
        assert run.session_id == raw.headers["x-nacre-session-id"]
        unkept = await world.client.chat.completions.with_raw_response.create(
            model="nacre", messages=[user("hello")]
        )
        assert "x-nacre-session-id" not in unkept.headers
        own = world.world.client
        shown = (await own.get(f"/api/runs/{unkept.headers['x-nacre-run-id']}")).json()
        lost = await own.get(f"/api/runs/{unkept.headers['x-nacre-run-id']}/trajectory")
        kept = await own.get(f"/api/runs/{run.id}/trajectory")
    assert (shown["isKept"], shown["isLive"]) == (False, False)
    assert (lost.status_code, kept.status_code) == (404, 200)
    assert "is not stored" in lost.json()["error"]["message"]


async def test_an_answer_that_is_to_be_stored_has_a_session_of_its_own(
    open_openai: OpenWorld,
) -> None:
    said = [user("I am Ada."), {"role": "assistant", "content": "Hello Ada."}, user("Who am I?")]
    async with open_openai([Say("Ada."), Say("hi")]) as world:
        create = world.client.chat.completions.with_raw_response.create
        raw = await create(model="nacre", messages=said, store=True)
        await create(model="nacre", messages=[user("hello")], store=False)
        (session,) = await world.world.system.store.sessions()
        kept = await world.world.system.store.messages(session.id)
    assert raw.headers["x-nacre-session-id"] == session.id
    texts = [getattr(it.message, "text", "") for it in kept]
    assert texts == ["I am Ada.", "Hello Ada.", "Who am I?", "Ada."]


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"n": 2}, "n", "is 2; only 1 is supported"),
    ({"response_format": {"type": "json_object"}}, "response_format.type", "'json_object'"),
    ({"functions": [{"name": "old"}]}, "functions", "use `tools`"),
    ({"tools": [{"type": "custom"}]}, "tools[0].type", "'custom'"),
    ({"tools": [{"type": "function"}]}, "tools[0].function", "is missing"),
    ({"tool_choice": "required"}, "tool_choice", "'required'; allowed"),
    ({"temperature": "warm"}, "temperature", "valid number"),
    ({"temperature": 3}, "temperature", "less than or equal to 2"),
    ({"messages": []}, "messages", "at least 1"),
    ({"messages": "hello"}, "messages", "valid list"),
    ({"messages": [{"role": "robot"}]}, "messages[0].role", "'system'"),
    ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content", "valid string"),
    (
        {"messages": [user("a"), {"role": "user", "content": [{"type": "input_audio"}]}]},
        "messages[1].content[0].type",
        "'input_audio'",
    ),
    (
        {
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}],
                }
            ]
        },
        "messages[0].content[0].image_url",
        "'file:///etc/passwd'",
    ),
    ({"messages": [{"role": "system", "content": "hm"}]}, "messages", "no message of a user"),
    (
        {"messages": [user("a"), {"role": "assistant", "content": "b"}]},
        "messages",
        "nothing to answer",
    ),
    ({"messages": [user("a"), {"role": "tool"}]}, "messages[1].tool_call_id", "is missing"),
    ({"user": "a" * 257}, "user", "257 characters"),
]


async def test_what_cannot_be_done_is_refused_by_name(open_openai: OpenWorld) -> None:
    async with open_openai() as world:
        for options, param, problem in REFUSED:
            with pytest.raises(openai.BadRequestError) as refused:
                await world.chat(extra_body=options)
            error: Any = refused.value
            assert (error.type, error.param) == ("invalid_request_error", param)
            assert problem in error.message
        assert world.model.requests == []


NOT_JSON = [
    (b"{", "application/json"),
    (b'{"model": "nacre", "messages": NaN}', "application/json"),
    (b"[" * 10_000, "application/json"),
    (b"[]", "application/json"),
    (b"", "application/json"),
    (b'{"model": "nacre"}', "text/plain"),
]


async def test_what_is_not_a_json_object_is_a_bad_request(open_openai: OpenWorld) -> None:
    async with open_openai() as world:
        for body, kind in NOT_JSON:
            answer = await world.world.client.post(
                "/v1/chat/completions", content=body, headers={"content-type": kind}
            )
            assert answer.status_code == 400, (body[:40], kind)
            assert answer.json()["error"]["type"] == "invalid_request_error"


async def test_a_request_may_have_so_many_messages_and_no_more(open_openai: OpenWorld) -> None:
    many = [{"role": "user", "content": "a"}] * (MAX_MESSAGES + 1)
    async with open_openai() as world:
        client = world.world.client
        chat = await client.post("/v1/chat/completions", json={"model": "nacre", "messages": many})
        responses = await client.post("/v1/responses", json={"model": "nacre", "input": many})
    for answer, member in ((chat, "messages"), (responses, "input")):
        error = answer.json()["error"]
        assert (answer.status_code, error["type"]) == (400, "invalid_request_error")
        assert error["param"] == member
        assert error["message"] == f"`{member}` has 4097 items; at most 4096 are allowed"
