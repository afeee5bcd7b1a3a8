"""The statements of the contract that the code must keep, each with an id that tests name.

A test says `@requirement("id")`; `test_requirements.py` fails for a statement without a test and
for an id without a statement. Statements are added with the part that has to keep them.
"""

from collections.abc import Callable
from typing import Final, TypeVar

Test = TypeVar("Test", bound=Callable[..., object])

REQUIREMENTS: Final = {
    # What has to be proven of code mode.
    "validation:typescript-is-lazy": (
        "TypeScript is transformed and run, and is not loaded where only JavaScript runs"
    ),
    "validation:no-modules": "import, require and every other module loader fail",
    "validation:no-files-network-environment": "files, network and environment are out of reach",
    "validation:endless-loops-end": "endless loops time out and block nobody",
    "validation:memory-cap": "the memory cap ends the VM",
    "validation:output-cap": "the output cap holds for completed and for suspended programs",
    "validation:snapshot-cap": "the snapshot cap holds",
    "validation:wait-resumes": "a suspended program is resumed and returns its final value",
    "validation:abort-cleans-up": "an aborted program leaves nothing behind",
    # The security boundary.
    "security:outside-the-event-loop": "programs run outside the host's event loop and process",
    "security:no-host-objects": "no host object, function or prototype is reachable from a program",
    "security:interrupts-and-wall-clock": (
        "the engine is interrupted, and what cannot be is ended by the supervisor's clock"
    ),
    "security:caps": "output, snapshots, log lines and pending calls are capped",
    "security:json-bridge": "values cross the bridge as JSON only, in both directions",
    "security:plain-errors": "errors of the host reach a program as plain errors",
    "security:snapshots-dropped": "snapshots are dropped at the end, on abort and on close",
    "security:foreign-snapshots-refused": "a snapshot from elsewhere is refused before it runs",
    "security:os-hardening": "a worker is locked down, and what could not be applied is reported",
}


def requirement(*ids: str) -> Callable[[Test], Test]:
    """Say which statements a test holds the code to."""
    unknown = [name for name in ids if name not in REQUIREMENTS]
    if unknown:
        raise KeyError(f"no such requirement: {', '.join(unknown)}")

    def mark(test: Test) -> Test:
        return test

    return mark
