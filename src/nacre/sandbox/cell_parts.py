"""What a cell is made of: parts that its legs and bursts share, from its first leg to its last."""

from collections.abc import Callable
from dataclasses import dataclass

from anyio.abc import TaskGroup

from nacre.ids import CellId, new_cell_id
from nacre.sandbox.cell_output import CellOutput
from nacre.sandbox.cell_vm import CellVm, SandboxRuntime
from nacre.sandbox.host_requests import HostRequests
from nacre.sandbox.limits import MAX_ANSWER_BYTES
from nacre.sandbox.program import Program, ProgramSource
from nacre.sandbox.results import Usage
from nacre.sandbox.transforms import TypeScriptTransforms


@dataclass(frozen=True, kw_only=True, slots=True)
class CellContext:
    """A program, where its VM is, what it asked for, what it put out, and what it used."""

    cell_id: CellId
    program: Program
    source: ProgramSource
    vm: CellVm
    requests: HostRequests
    output: CellOutput
    usage: Usage


def build_cell_context(
    program: Program,
    *,
    home: SandboxRuntime,
    typescript: TypeScriptTransforms,
    tasks: TaskGroup,
    wake: Callable[[], None],
) -> CellContext:
    """The parts of a new cell; `wake` is called when a leg that waits has to look around."""
    limits, usage = program.limits, Usage()
    output = CellOutput(max_bytes=limits.max_output_bytes, usage=usage, on_output=program.on_output)
    vm = CellVm(
        home,
        limits,
        owner=program.owner,
        shared=program.shared,
        on_output=output.add,
        on_trouble=wake,
    )
    requests = HostRequests(
        program.handler,
        tasks=tasks,
        most_at_once=limits.max_pending_tool_calls,
        most_bytes=max(limits.memory_limit_bytes, MAX_ANSWER_BYTES),
        wake=wake,
    )
    return CellContext(
        cell_id=new_cell_id(),
        program=program,
        source=ProgramSource(program, typescript),
        vm=vm,
        requests=requests,
        output=output,
        usage=usage,
    )
