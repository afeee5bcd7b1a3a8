"""One program instead of ten turns: parallel calls, whose results are joined and summed up."""

import anyio

import nacre
from examples.own_tools import CUSTOMERS, Customer, list_orders
from nacre import CodeMode, Completed

PROGRAM = """
const orders = await tools.list_orders();
const numbers = [...new Set(orders.map((order) => order.customer))];
const found = await Promise.all(numbers.map((customer) => tools.slow_customer({ customer })));
const customers = new Map(found.map((customer) => [customer.id, customer]));
const totals = {};
for (const { customer, total } of orders) {
  const { city } = customers.get(customer);
  totals[city] = (totals[city] ?? 0) + total;
}
return totals;
"""


class SlowDirectory:
    """A slow lookup that counts how many calls run at once."""

    def __init__(self) -> None:
        self.most_at_once = 0
        self._at_once = 0

    async def look_up(self, customer: int) -> Customer:
        """Look up a customer by number, slowly."""
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        await anyio.sleep(0.2)
        self._at_once -= 1
        return CUSTOMERS[customer]


async def main() -> None:
    """Run the program and print its result."""
    directory = SlowDirectory()
    tools = [list_orders, nacre.tool(name="slow_customer")(directory.look_up)]
    async with CodeMode(tools=tools) as code_mode:
        result = await code_mode.exec(PROGRAM)
        print(result.value if isinstance(result, Completed) else result)
        print(
            f"{result.telemetry.call_count} calls in one program, "
            f"{directory.most_at_once} of them at once"
        )


if __name__ == "__main__":
    anyio.run(main)
