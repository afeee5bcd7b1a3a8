"""A shop that takes some time for everything, so that a timeline has something to show."""

import asyncio
from typing import Any

from nacre.plugins.api import AskApproval, BeforeToolCall, PluginApi

_CUSTOMERS = {"C-17": "Ada Lovelace", "C-23": "Grace Hopper", "C-31": "Katherine Johnson"}
_ORDERS = (
    {"id": "4021", "customer": "C-17", "total": 129.0, "daysLate": 6},
    {"id": "4044", "customer": "C-23", "total": 54.5, "daysLate": 2},
    {"id": "4051", "customer": "C-31", "total": 318.2, "daysLate": 9},
)


def register(api: PluginApi) -> None:
    async def orders_list(status: str) -> list[dict[str, Any]]:
        """List the orders with a status: open, late or done."""
        await asyncio.sleep(0.18)
        return [dict(order) for order in _ORDERS]

    async def customers_get(customer: str) -> dict[str, str]:
        """Get the name and the address of a customer by id."""
        await asyncio.sleep(0.12 + 0.07 * (int(customer[-1]) % 4))
        return {"id": customer, "name": _CUSTOMERS[customer]}

    async def shipments_track(order: str) -> dict[str, str]:
        """Track the shipment of an order: where it is, and why it waits."""
        await asyncio.sleep(0.2 + 0.05 * (int(order) % 5))
        return {"order": order, "place": "customs", "reason": "a form is missing"}

    async def refunds_create(order: str, amount: float) -> dict[str, Any]:
        """Refund a part of an order to the customer."""
        await asyncio.sleep(0.25)
        return {"order": order, "refunded": amount}

    async def mail_send(customer: str, text: str) -> str:
        """Send a mail to a customer."""
        await asyncio.sleep(0.1)
        return "sent"

    async def ask_before_refund(event: BeforeToolCall) -> AskApproval | None:
        return AskApproval("it moves money") if event.tool_name == "refunds_create" else None

    for function in (orders_list, customers_get, shipments_track, refunds_create, mail_send):
        api.add_tool(function)
    api.add_hook("before_tool_call", ask_before_refund)
