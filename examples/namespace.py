"""A namespace: a plugin's API for programs, with data and functions that call its tools."""

import anyio

import nacre
from examples.own_tools import CUSTOMERS, ORDERS, Customer, Order
from nacre import CodeMode, Completed, Namespace, NamespaceContext, namespace_tool

PLUGIN = "shop"


@nacre.tool(owner=PLUGIN)
def shop_orders(status: str) -> list[Order]:
    """List the orders with a status."""
    return [order for order in ORDERS if order.status == status]


@nacre.tool(owner=PLUGIN)
def shop_customer(customer: int) -> Customer:
    """Look up a customer by number."""
    return CUSTOMERS[customer]


def scope(context: NamespaceContext) -> dict[str, object]:
    """The members of `Shop` in this run; mappers convert arguments to the input of a tool."""
    return {
        "currency": "EUR",
        "agent": context.agent_id,
        "orders": {"list": namespace_tool("shop_orders", lambda args: {"status": args[0]})},
        "customer": namespace_tool("shop_customer", lambda args: {"customer": args[0]}),
    }


SHOP = Namespace(
    id="shop",
    global_name="Shop",
    description="Orders and customers of the shop.",
    prompt='await Shop.orders.list("open" | "paid" | "overdue"); await Shop.customer(number)',
    required_tool_names=("shop_orders", "shop_customer"),
    create_scope=scope,
)

PROGRAM = """
const [first] = await Shop.orders.list("overdue");
const { name } = await Shop.customer(first.customer);
return `${name} owes ${first.total} ${Shop.currency}`;
"""


async def main() -> None:
    """Run a program that uses the namespace."""
    tools = [shop_orders, shop_customer]
    async with CodeMode(tools=tools, namespaces=[(PLUGIN, SHOP)]) as code_mode:
        result = await code_mode.exec(PROGRAM)
        print(result.value if isinstance(result, Completed) else result)
        called = ", ".join(result.telemetry.called_tools)
        print(f"behind it: {called}")


if __name__ == "__main__":
    anyio.run(main)
