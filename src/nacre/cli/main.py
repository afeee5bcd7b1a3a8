"""Entry point of `nacre`: imports next to nothing by itself, to be there for the first Ctrl-C."""

import gc
import sys


def main(arguments: list[str] | None = None) -> int:
    """Run one command and return the exit status of the process."""
    status = _status_of(sys.argv[1:] if arguments is None else arguments)
    if arguments is None:
        from nacre.cli.app import exit_with_deadline

        exit_with_deadline(status)
    return status


def _status_of(arguments: list[str]) -> int:
    # Nothing that imports make is garbage, and looking for it takes 20 ms; commands enable it.
    gc.disable()
    try:
        from nacre.cli.app import run_command

        return run_command(arguments)
    except KeyboardInterrupt:
        return _report_interrupt()
    finally:
        gc.enable()


def _report_interrupt() -> int:
    from nacre.cli.output import ExitStatus, warn

    warn("aborted")
    return ExitStatus.INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
