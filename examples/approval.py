"""An approval within a program: the answer comes after the program is suspended."""

import anyio

from examples.own_tools import TOOLS
from nacre import (
    AllowEdited,
    ApprovalRequest,
    AskApproval,
    BeforeToolCall,
    CodeMode,
    Completed,
    Deny,
    Waiting,
    hook,
)

PROGRAM = """
const reminders = [];
for (const [customer, amount] of [[7, 162.75], [9, 17]]) {
  try {
    reminders.push(await tools.send_reminder({ customer, amount }));
  } catch (error) {
    reminders.push(`${error.code}: ${error.message}`);
  }
}
return reminders;
"""


@hook("before_tool_call")
async def ask_before_sending(event: BeforeToolCall) -> AskApproval | None:
    """Require an approval for every letter."""
    if event.tool_name == "send_reminder":
        return AskApproval("it writes to a customer")
    return None


class Person:
    """A person who answers later."""

    def __init__(self) -> None:
        self.is_back = anyio.Event()

    async def answer(self, request: ApprovalRequest) -> AllowEdited | Deny:
        """Round large amounts down, and allow small ones."""
        await self.is_back.wait()
        print(f"asked about {request.tool_name} with {request.input}: {request.reason}")
        if request.input["customer"] == 9:
            return Deny("17 euros are not worth a letter")
        return AllowEdited({**request.input, "amount": 160})


async def main() -> None:
    """Run the program, wait for the approvals, and continue it."""
    person = Person()
    async with CodeMode(
        tools=TOOLS, hooks=[ask_before_sending], approvals=person.answer
    ) as code_mode:
        result = await code_mode.exec(PROGRAM)
        while isinstance(result, Waiting):
            for call in result.pending:
                print(f"suspended; {call.tool_id} awaits approval: {call.is_awaiting_approval}")
            person.is_back.set()
            result = await code_mode.wait(result.cell_id)
        print(result.value if isinstance(result, Completed) else result)


if __name__ == "__main__":
    anyio.run(main)
