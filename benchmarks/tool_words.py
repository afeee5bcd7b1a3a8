"""The words for generated tools."""

from typing import Final

VENDORS: Final = (
    "amber", "birch", "cobalt", "delta", "ember", "fjord", "garnet", "harbor", "indigo", "juniper",
)  # fmt: skip
"""Each provider has tools in every area, which makes 100 owners."""

VERBS: Final = (
    "add", "approve", "archive", "assign", "cancel", "compare", "count", "create", "delete",
    "export", "find", "get", "import", "list", "merge", "move", "rename", "restore", "share",
    "update",
)  # fmt: skip

QUALIFIERS: Final = (
    "active", "daily", "deleted", "draft", "external", "favorite", "internal", "late", "linked",
    "monthly", "private", "recurring", "related", "shared", "urgent",
)  # fmt: skip

NOUNS_BY_AREA: Final = {
    "mail": ("attachment", "draft", "filter", "folder", "label", "message", "sender", "thread"),
    "calendar": ("attendee", "booking", "event", "holiday", "invitation", "meeting", "reminder"),
    "billing": ("credit_note", "discount", "invoice", "payment", "price", "refund", "subscription"),
    "code": ("branch", "commit", "issue", "pull_request", "release", "repository", "review"),
    "files": ("archive", "directory", "document", "link", "permission", "scan", "version"),
    "crm": ("account", "campaign", "contact", "deal", "lead", "pipeline", "quote"),
    "travel": ("cabin", "flight", "hotel", "itinerary", "passenger", "seat", "train"),
    "cloud": ("bucket", "certificate", "cluster", "deployment", "instance", "snapshot", "volume"),
    "people": ("applicant", "contract", "department", "employee", "leave_request", "shift"),
    "weather": ("alert", "forecast", "measurement", "radar_image", "sensor", "station", "warning"),
}

PURPOSES: Final = (
    "and returns what was changed",
    "with paging and a stable order",
    "for one account, newest first",
    "without notifying anybody",
    "after checking the permissions of the caller",
    "and keeps the earlier state for thirty days",
    "matching every filter that is given",
    "as structured records with their ids",
)

PROPERTIES: Final = {
    "account_id": "string", "after": "string", "amount": "number", "assignee": "string",
    "before": "string", "comment": "string", "cursor": "string", "fields": "array",
    "include_archived": "boolean", "language": "string", "limit": "integer", "notify": "boolean",
    "owner_email": "string", "priority": "integer", "query": "string", "sort_by": "string",
    "status": "string", "tags": "array", "time_zone": "string", "title": "string",
}  # fmt: skip
"""Parameters of the tools, in addition to an id, by JSON type."""
