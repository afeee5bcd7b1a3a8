"""What the process says with its exit status, and the error for arguments that make no sense."""

from enum import IntEnum


class ExitStatus(IntEnum):
    """The exit statuses of every command; above 128 they are those a shell gives for a signal."""

    COMPLETED = 0
    FAILED = 1
    BAD_USAGE = 2
    WAITING = 3
    INTERRUPTED = 130
    READER_GONE = 141
    TERMINATED = 143


class UsageProblem(Exception):
    """The command cannot start as it was given; the message says which value and what to do."""
