"""Entry point of `nacre`: runs one command and ends the process.

It imports almost nothing, so that it can handle a Ctrl-C that comes while commands are imported.
"""

import gc
import sys

# Much longer than a thread takes to finish its current step.
_EXIT_GRACE_SECONDS = 3.0


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return the exit status of the process."""
    status = _run(sys.argv[1:] if arguments is None else arguments)
    if arguments is None:
        exit_with_deadline(status)
    return status


def _run(arguments: list[str]) -> int:
    # Imports leave no garbage, and the search for it takes 20 ms. Commands enable it again.
    gc.disable()
    try:
        if arguments[:1] == ["exec"]:
            from nacre.cli.exec_program import run_plain_command

            status = run_plain_command(arguments)
            if status is not None:
                return status
        from nacre.cli.app import run_command

        return run_command(arguments)
    except KeyboardInterrupt:
        from nacre.cli.output import ExitStatus, warn

        warn("aborted")
        return ExitStatus.INTERRUPTED
    finally:
        gc.enable()


def exit_with_deadline(status: int) -> None:
    """End the process. If other threads still run, limit the time to wait for them."""
    import threading
    from contextlib import suppress

    others = (it for it in threading.enumerate() if it is not threading.main_thread())
    if any(not thread.daemon for thread in others):
        threading.Thread(target=_force_exit, args=(status,), daemon=True).start()
        # What Python does before its exit functions. Ctrl-C ends the wait.
        with suppress(KeyboardInterrupt):
            threading._shutdown()  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue, reportUnknownMemberType]
    _exit_at_once(status)


def _exit_at_once(status: int) -> None:
    """Do what Python does at exit, except freeing every object, which takes an eighth of
    `nacre exec`."""
    import atexit
    import os
    from contextlib import suppress

    atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage]
    for stream in (sys.stdout, sys.stderr):
        # Closed when the process started, or its reader is gone.
        with suppress(AttributeError, OSError, ValueError):
            stream.flush()
    os._exit(status)


def _force_exit(status: int) -> None:
    import os
    import time
    from contextlib import suppress

    from nacre.cli.output import warn

    time.sleep(_EXIT_GRACE_SECONDS)
    try:
        warn("a tool or plugin did not stop its thread; exiting anyway")
        # The reader of standard output may be gone.
        with suppress(OSError, ValueError):
            sys.stdout.flush()
    finally:
        os._exit(status)


if __name__ == "__main__":
    sys.exit(main())
