"""Tools of a small shop, for `nacre exec --tools examples.own_tools:TOOLS` and other examples."""

from dataclasses import dataclass
from typing import Literal

import nacre
from nacre import ToolCall


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """An order, with a total in euros."""

    id: int
    customer: int
    status: Literal["open", "paid", "overdue"]
    total: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Customer:
    """A customer."""

    id: int
    name: str
    city: str


ORDERS = [
    Order(id=1, customer=7, status="overdue", total=120.5),
    Order(id=2, customer=8, status="paid", total=80),
    Order(id=3, customer=7, status="overdue", total=42.25),
    Order(id=4, customer=9, status="overdue", total=17),
]
CUSTOMERS = {
    7: Customer(id=7, name="Ada", city="London"),
    8: Customer(id=8, name="Grace", city="New York"),
    9: Customer(id=9, name="Edsger", city="Eindhoven"),
}


@nacre.tool
def list_orders(status: Literal["open", "paid", "overdue"] | None = None) -> list[Order]:
    """List the orders of the shop.

    Args:
        status: Only orders with this status; all of them if it is left out.
    """
    return [order for order in ORDERS if status in (None, order.status)]


@nacre.tool
def get_customer(customer: int) -> Customer:
    """Look up a customer by number.

    Args:
        customer: The number, as in an order.
    """
    if customer not in CUSTOMERS:
        raise LookupError(f"there is no customer {customer}; known: {sorted(CUSTOMERS)}")
    return CUSTOMERS[customer]


@nacre.tool
async def send_reminder(customer: int, amount: float, call: ToolCall) -> str:
    """Remind a customer of what is still to be paid.

    Args:
        customer: The number of the customer.
        amount: How much, in euros.
    """
    call.update(f"writing to customer {customer}")
    return f"reminded {CUSTOMERS[customer].name} of {amount:.2f} euros"


TOOLS = [list_orders, get_customer, send_reminder]
PROGRAM = "return tools.get_customer({customer: 7})"

if __name__ == "__main__":
    print("These tools are for programs. Try, in this directory:")
    print()
    print(f"  nacre exec --tools examples.own_tools:TOOLS -e '{PROGRAM}'")
    print()
    for tool in TOOLS:
        print(f"{tool.id}: {tool.description}")
