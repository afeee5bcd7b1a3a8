"""Approvals: who is asked about a call, what may be answered, what is remembered."""

from nacre.tools.approvals.asking import APPROVAL_SECONDS, Approvals, Approver, Granted, Refused
from nacre.tools.approvals.memory import ApprovalMemory
from nacre.tools.approvals.queue import ApprovalQueue
from nacre.tools.approvals.requests import (
    AllowAlways,
    AllowEdited,
    AllowOnce,
    ApprovalInfo,
    ApprovalRequest,
    Deny,
)

__all__ = [
    "APPROVAL_SECONDS",
    "AllowAlways",
    "AllowEdited",
    "AllowOnce",
    "ApprovalInfo",
    "ApprovalMemory",
    "ApprovalQueue",
    "ApprovalRequest",
    "Approvals",
    "Approver",
    "Deny",
    "Granted",
    "Refused",
]
