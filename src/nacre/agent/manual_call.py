"""Turns without a model: a person runs a program, or calls a tool, on the path of every call."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, cast

import anyio

from nacre.agent.turn_context import list_server_tools, make_executor
from nacre.agent.turn_loop import DirectSurface, ToolCalls
from nacre.config import RunConfig
from nacre.errors import SessionError
from nacre.json_types import encode_json
from nacre.messages import AssistantMessage, ToolCallPart, ToolMessage, Usage

if TYPE_CHECKING:
    from nacre.agent.turn_context import TurnContext
    from nacre.code_mode import CodeModeRun, Runtime
    from nacre.json_types import JsonObject
    from nacre.tools import SurfaceKind, ToolSurface

EXEC_ID: Final = "code_mode:exec"
_CALL_ID_BYTES: Final = 8
_CLEAN_UP_SECONDS: Final = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class ManualCall:
    """A call that a person makes instead of a model."""

    tool_id: str
    """The id of a tool, or `code_mode:exec` for a program."""
    input: JsonObject

    @property
    def is_program(self) -> bool:
        return self.tool_id == EXEC_ID


class ManualCalls:
    """Runs the calls of people, each as a turn of a session."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def plan_surface(self, call: ManualCall) -> SurfaceKind:
        return "code_mode" if call.is_program else "direct"

    async def run(self, turn: TurnContext, call: ManualCall) -> None:
        """Make the call, and abort everything that still runs after it."""
        turn.queue.stop_steering()
        turn.output.data["manualCall"] = call.tool_id
        surface: ToolSurface
        reason = "the call has ended"
        if call.is_program:
            surface = program = await self._open_program(turn)
            work = self._run_program(turn, program, call)
        else:
            name, surface = await self._open_tool(turn, call)
            work = self._call(turn, surface, name, call.input)
        turn.output.surface = surface.kind
        try:
            await work
        except BaseException:
            reason = turn.stop.reason or "the run was cut off"
            raise
        finally:
            with anyio.move_on_after(_CLEAN_UP_SECONDS, shield=True):
                await surface.abort(reason)

    async def _open_program(self, turn: TurnContext) -> CodeModeRun:
        """Code mode, also if the agent does not use it."""
        tools = turn.agent.tools
        settings = replace(tools, code_mode=replace(tools.code_mode, enabled=True))
        config = RunConfig(document=turn.service.config.document, tools=settings)
        executor = make_executor(turn, self._runtime)
        run = self._runtime.run_with(executor, config, tools=turn.tools, servers=turn.servers)
        if not run.is_code_mode:
            raise SessionError(
                f"the agent {turn.agent.id} has no tools that a program could call", code="invalid"
            )
        await self._runtime.sandbox.ensure_available()
        return run

    async def _open_tool(self, turn: TurnContext, call: ManualCall) -> tuple[str, DirectSurface]:
        executor = make_executor(turn, self._runtime)
        found = [tool for tool in turn.tools if tool.id == call.tool_id]
        if not found:
            listed = await list_server_tools(turn, executor.policy)
            found = [tool for tool in listed.tools if tool.id == call.tool_id]
        surface = DirectSurface(found[:1], executor)
        if not surface.specs:
            raise SessionError(
                f"the agent {turn.agent.id} has no tool {call.tool_id!r}, or its policy denies it",
                code="invalid",
            )
        return surface.specs[0].name, surface

    async def _run_program(self, turn: TurnContext, surface: CodeModeRun, call: ManualCall) -> None:
        await self._call(turn, surface, "exec", call.input)
        while live := surface.cells():
            cell = live[0]
            if cell.state == "waiting" and cell.reason == "yield":
                # A model would call `wait`. Here a person resumes the program, or discards it.
                turn.run.set_waiting(True)
                turn.budget.set_running(False)
                await surface.wait_for_person(cell.cell_id)
                turn.budget.set_running(True)
                turn.run.set_waiting(False)
            await self._call(turn, surface, "wait", {"runId": cell.cell_id})

    async def _call(
        self, turn: TurnContext, surface: ToolSurface, name: str, given: JsonObject
    ) -> None:
        part = ToolCallPart(
            call_id=f"call_{os.urandom(_CALL_ID_BYTES).hex()}",
            name=name,
            arguments=encode_json(given).decode(),
        )
        message = AssistantMessage(
            parts=(part,), model="", usage=Usage(), finish_reason="tool_calls"
        )
        turn.output.messages.append(message)
        turn.run.events.add(
            "message.completed",
            {
                "model": "",
                "text": "",
                "toolCalls": [
                    {"callId": part.call_id, "name": part.name, "arguments": part.arguments}
                ],
                "finishReason": "tool_calls",
                "usage": Usage().to_json(),
            },
        )
        await ToolCalls(turn, surface).run([part])
        result = cast("ToolMessage", turn.output.messages[-1])
        turn.output.text = result.content
        turn.output.error = result.content if result.is_error else ""
