"""`doctor`: what the sandbox needs on this machine, what it has, and what to do about the rest."""


def doctor_command() -> int:
    return 0
