"""`nacre exec`: what it takes, what it prints where, and how it ends."""

import json
import os
import pty
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from nacre.cli.main import main
from tests.cli.nacre_process import (
    PATIENCE_SECONDS,
    pipe_of,
    run_nacre,
    start_nacre,
    still_running,
    workers_of,
)

# Prints a line, so that the test knows it runs, and then never ends by itself.
ENDLESS = "text('marker'); await yield_control(); for (;;);"


def run_here(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """The command in this process: exit status, standard output, standard error."""
    status = main(["exec", *arguments])
    out, err = capsys.readouterr()
    return status, out, err


def test_value_goes_to_standard_output_as_indented_json() -> None:
    done = run_nacre("exec", "-e", "return { sum: 1 + 1, list: ['é'] }")

    assert done.stdout == '{\n  "sum": 2,\n  "list": [\n    "é"\n  ]\n}\n'
    assert (done.returncode, done.stderr) == (0, "")


def test_console_script_runs_a_program() -> None:
    script = Path(sys.executable).parent / "nacre"

    done = subprocess.run(
        [script, "exec", "-e", "return 1 + 1"], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "2\n", "")


def test_output_comes_in_order_and_before_the_value(capsys: pytest.CaptureFixture[str]) -> None:
    program = "text('a'); json([1]); console.log('b', 2); text('c\\n'); return 'd'"

    result = run_here(capsys, "-e", program)

    assert result == (0, 'a\n[\n  1\n]\nb 2\nc\n\n"d"\n', "")


def test_value_null_is_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_here(capsys, "-e", "text('only this')") == (0, "only this\n", "")


def test_verbose_says_what_the_program_cost(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run_here(capsys, "-v", "-e", "await yield_control(); return 1")

    assert (status, out) == (0, "1\n")
    assert err.startswith("completed after ")
    assert err.endswith("2 bursts), 1 wait\n")


# --json


def normalised(document: str) -> dict[str, Any]:
    """The document with the numbers that differ from run to run replaced by their types."""
    result = json.loads(document)
    telemetry = result["telemetry"]
    for name in ("wallMs", "workerMs"):
        assert telemetry[name] > 0
        telemetry[name] = "number"
    assert telemetry["snapshotBytes"] >= 0
    telemetry["snapshotBytes"] = "number"
    return result


def test_json_is_one_document_with_the_output_of_all_legs() -> None:
    program = "text('one'); await yield_control(); json({ two: 2 }); return [3]"

    done = run_nacre("exec", "--json", "-e", program)

    result = normalised(done.stdout)
    telemetry = result.pop("telemetry")
    assert result == {
        "status": "completed",
        "value": [3],
        "output": [{"type": "text", "text": "one"}, {"type": "json", "value": {"two": 2}}],
    }
    assert telemetry["guestBursts"] == 2
    assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 1)


def test_json_of_a_failure_has_code_reason_and_position() -> None:
    done = run_nacre("exec", "--json", "-e", "text('a');\n  missing()")

    result = normalised(done.stdout)
    result.pop("telemetry")
    assert result == {
        "status": "failed",
        "error": "ReferenceError: missing is not defined\n    at cell.js:2:3",
        "code": "internal_error",
        "reason": "guest_error",
        "line": 2,
        "column": 3,
        "output": [{"type": "text", "text": "a"}],
    }
    assert (done.returncode, done.stderr) == (1, "")


def test_json_stays_json_where_the_encoding_lacks_a_character() -> None:
    ascii_only = {"PYTHONIOENCODING": "ascii"}

    done = run_nacre(
        "exec", "--json", "-e", "return 'é'", environment=ascii_only, python=sys.executable
    )

    assert json.loads(done.stdout)["value"] == "é"


# Where the program comes from.


def test_program_comes_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "program.js"
    file.write_bytes(b"\xef\xbb\xbf// With a byte order mark.\r\nreturn 'from a file'\r\n")

    done = run_nacre("exec", file)

    assert (done.returncode, done.stdout, done.stderr) == (0, '"from a file"\n', "")


@pytest.mark.parametrize("arguments", [[], ["-"]])
def test_program_comes_from_standard_input(arguments: list[str]) -> None:
    done = run_nacre("exec", *arguments, stdin=b"return 'piped'")

    assert (done.returncode, done.stdout, done.stderr) == (0, '"piped"\n', "")


def test_file_and_code_together_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_here(capsys, "-e", "return 1", "program.js") == (
        2,
        "",
        "nacre: got both a file (program.js) and -e; give one of them\n",
    )


def test_no_program_at_all_is_refused_on_a_terminal() -> None:
    ours, theirs = pty.openpty()
    try:
        done = run_nacre("exec", stdin=theirs)
    finally:
        os.close(ours)
        os.close(theirs)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "nacre: there is no program to run; give a file, -e CODE, or pipe one to standard input\n"
    )


@pytest.mark.parametrize("code", ["", " \n"])
def test_empty_program_is_refused(capsys: pytest.CaptureFixture[str], code: str) -> None:
    assert run_here(capsys, "-e", code) == (
        2,
        "",
        "nacre: the program (given with -e) is empty; nothing was run\n",
    )


def test_empty_standard_input_is_refused() -> None:
    done = run_nacre("exec", stdin=b"")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "nacre: the program (from standard input) is empty; nothing was run\n"


def test_missing_file_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "missing.js"

    status, out, err = run_here(capsys, str(file))

    assert (status, out) == (2, "")
    assert err.startswith(f"nacre: cannot read '{file}': no such file or directory; ")


def test_directory_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status, out, err = run_here(capsys, str(tmp_path))

    assert (status, out) == (2, "")
    assert err.startswith(f"nacre: cannot read '{tmp_path}': is a directory; ")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_unreadable_file_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "secret.js"
    file.touch(mode=0)

    status, out, err = run_here(capsys, str(file))

    assert (status, out) == (2, "")
    assert err.startswith(f"nacre: cannot read '{file}': permission denied; ")


def test_binary_file_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "image.js"
    file.write_bytes(b"return 1\n\x89PNG\xff")

    assert run_here(capsys, str(file)) == (
        2,
        "",
        f"nacre: {file} is not UTF-8 text: byte 0x89 in line 2; save it as UTF-8\n",
    )


def test_file_without_an_end_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_here(capsys, "/dev/zero") == (
        2,
        "",
        "nacre: /dev/zero is larger than 16777216 bytes; is it the right file?\n",
    )


def test_nul_in_a_file_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run_here(capsys, "a\0b")

    assert (status, out) == (2, "")
    assert err.startswith("nacre: cannot read 'a\\x00b': embedded null byte; ")


def test_nul_in_a_program_is_a_character_like_any_other() -> None:
    done = run_nacre("exec", stdin=b"return '\0'.length")

    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")


def test_program_that_is_not_utf_8_is_refused() -> None:
    done = run_nacre("exec", "-e", b"return '\xff'")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("nacre: the program given with -e is not UTF-8 (character 9); ")


def test_file_name_that_is_not_utf_8_is_shown_with_an_escape() -> None:
    done = run_nacre("exec", b"\xff.js")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("nacre: cannot read '\\udcff.js': no such file or directory; ")


def test_lone_surrogates_in_options_do_not_crash() -> None:
    done = run_nacre("exec", "--timeout-ms", b"\xff", "--language", "javascript", "-e", "return 1")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith('nacre: --timeout-ms is "\\udcff"; allowed: ')


# Language.


@pytest.mark.parametrize("ending", ["ts", "mts", "TS"])
def test_typescript_is_known_by_its_ending(tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"program.{ending}"
    file.write_text("const one: number = 1; return one", encoding="utf-8")

    done = run_nacre("exec", file)

    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")


def test_language_option_comes_before_the_ending(tmp_path: Path) -> None:
    file = tmp_path / "program.ts"
    file.write_text("const one: number = 1; return one", encoding="utf-8")

    done = run_nacre("exec", "--language", "javascript", file)

    assert (done.returncode, done.stdout) == (1, "")
    assert "reason syntax_error, code invalid_input" in done.stderr


def test_language_option_makes_code_typescript(capsys: pytest.CaptureFixture[str]) -> None:
    program = "enum Size { Small = 1 }; const size: Size = Size.Small; return size"

    assert run_here(capsys, "--language", "typescript", "-e", program) == (0, "1\n", "")


def test_unknown_language_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_here(capsys, "--language", "ruby", "-e", "puts 1") == (
        2,
        "",
        'nacre: --language is "ruby"; allowed: javascript and typescript\n',
    )


# Limits.


def test_limits_out_of_range_are_clamped_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    limits = ("--timeout-ms", "5", "--memory-limit-bytes", "99999999999")

    assert run_here(capsys, *limits, "-e", "return 1") == (
        0,
        "1\n",
        "nacre: --timeout-ms 5 is below the minimum; 100 is used\n"
        "nacre: --memory-limit-bytes 99999999999 is above the maximum; 1073741824 is used\n",
    )


def test_json_is_silent_about_clamping(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run_here(capsys, "--json", "--timeout-ms", "-1", "-e", "for (;;);")

    assert (status, err) == (1, "")
    assert json.loads(out)["error"] == "the program exceeded its time limit (timeoutMs is 100)"


@pytest.mark.parametrize(
    "option",
    [
        "--timeout-ms",
        "--memory-limit-bytes",
        "--max-output-bytes",
        "--max-snapshot-bytes",
        "--max-pending-tool-calls",
    ],
)
@pytest.mark.parametrize("value", ["ten", "1.5", "", "true"])
def test_limit_of_a_wrong_type_is_refused_by_name(
    capsys: pytest.CaptureFixture[str], option: str, value: str
) -> None:
    status, out, err = run_here(capsys, option, value, "-e", "return 1")

    assert (status, out) == (2, "")
    assert err.startswith(f'nacre: {option} is "{value}"; allowed: whole numbers from ')


def test_output_limit_is_in_force(capsys: pytest.CaptureFixture[str]) -> None:
    program = "text('x'.repeat(2000))"

    status, _, err = run_here(capsys, "--max-output-bytes", "1024", "-e", program)

    assert status == 1
    assert "reason output_limit_exceeded, code output_limit_exceeded\n" in err


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["exec", "--frobnicate"], "No such option: --frobnicate; see `nacre exec --help`"),
        (["frobnicate"], "No such command 'frobnicate'; see `nacre --help`"),
        (["exec", "a.js", "b.js"], "Got unexpected extra argument(s) (b.js); see"),
    ],
)
def test_bad_usage_is_one_line(
    capsys: pytest.CaptureFixture[str], arguments: list[str], problem: str
) -> None:
    status = main(arguments)

    out, err = capsys.readouterr()
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"nacre: {problem}")


# Failures.


def test_failure_shows_the_line_with_a_caret() -> None:
    program = "text('so far');\nif (true) {\n\tmissing();\n}"

    done = run_nacre("exec", "-e", program)

    assert (done.returncode, done.stdout) == (1, "so far\n")
    assert done.stderr == (
        "failed: ReferenceError: missing is not defined\n"
        "    at cell.js:3:2\n"
        "  --> -e:3:2\n"
        "  3 |     missing();\n"
        "    |     ^\n"
        "  reason guest_error, code internal_error\n"
    )


def test_syntax_error_shows_its_place_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "broken.js"
    file.write_text("const a = 1;\nreturn a +;\n", encoding="utf-8")

    done = run_nacre("exec", file)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "failed: SyntaxError: unexpected token in expression: ';'\n"
        "    at cell.js:2:11\n"
        f"  --> {file}:2:11\n"
        "  2 | return a +;\n"
        "    |           ^\n"
        "  reason syntax_error, code invalid_input\n"
    )


def test_of_a_long_line_the_part_around_the_place_is_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    program = f"{'/**/' * 1000}missing();{'/**/' * 1000}"

    _, _, err = run_here(capsys, "-e", program)

    _, _, _, shown, caret, _ = err.splitlines()
    assert len(shown) < 120
    assert shown[caret.index("^") :].startswith("missing()")


@pytest.mark.parametrize("place", ["999:999", "1:999", "0:0"])
def test_place_that_does_not_exist_does_no_harm(
    capsys: pytest.CaptureFixture[str], place: str
) -> None:
    program = f"throw Object.assign(new Error('x'), {{ stack: '    at cell.js:{place}' }})"

    status, out, err = run_here(capsys, "-e", program)

    assert (status, out) == (1, "")
    assert err.startswith("failed: Error: x\n")
    assert err.endswith("  reason guest_error, code internal_error\n")


# Waiting.


def test_waiting_cell_is_resumed_to_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    program = "for (const n of [1, 2, 3]) { text(n); await yield_control(); } return 'end'"

    assert run_here(capsys, "-e", program) == (0, '1\n2\n3\n"end"\n', "")


def test_timer_beyond_the_budget_of_a_leg_is_waited_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    program = "await new Promise((resolve) => setTimeout(resolve, 250)); return 'late'"

    assert run_here(capsys, "--timeout-ms", "100", "-e", program) == (0, '"late"\n', "")


def test_no_wait_stops_at_the_first_wait(capsys: pytest.CaptureFixture[str]) -> None:
    program = "text('first'); await yield_control(); text('second')"

    assert run_here(capsys, "--no-wait", "-e", program) == (
        3,
        "first\n",
        "waiting: yield; leave out --no-wait to continue\n",
    )


def test_no_wait_in_json_is_the_waiting_result(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run_here(capsys, "--no-wait", "--json", "-e", "await yield_control()")

    result = normalised(out)
    result.pop("telemetry")
    assert (status, err) == (3, "")
    assert result.pop("runId").startswith("run_")
    assert result == {"status": "waiting", "reason": "yield"}


# Signals, pipes and terminals.


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["SIGINT", "SIGTERM"]
)
def test_signal_aborts_an_endless_program_and_leaves_no_worker(
    number: signal.Signals, status: int
) -> None:
    with start_nacre("exec", "--timeout-ms", "60000", "-e", ENDLESS) as process:
        assert pipe_of(process.stdout).readline() == b"marker\n"
        workers = workers_of(process)
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE_SECONDS)

    assert (process.returncode, out, err) == (status, b"", b"nacre: aborted\n")
    assert workers
    assert still_running(workers) == []


def test_signal_while_the_program_only_waits_aborts_it() -> None:
    program = "text('marker'); await yield_control(); await new Promise((r) => setTimeout(r, 1e8))"
    with start_nacre("exec", "-e", program) as process:
        assert pipe_of(process.stdout).readline() == b"marker\n"
        workers = workers_of(process)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_SECONDS)

    assert (process.returncode, out, err) == (130, b"", b"nacre: aborted\n")
    assert still_running(workers) == []


def test_aborted_program_in_json_is_a_failed_result() -> None:
    # A worker in JSON mode says nothing before the end; that it has one is the marker.
    with start_nacre("exec", "--json", "--timeout-ms", "60000", "-e", "for (;;);") as process:
        while not (workers := workers_of(process)):
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=PATIENCE_SECONDS)

    result = json.loads(out)
    assert (process.returncode, err) == (143, b"nacre: aborted\n")
    assert (result["status"], result["reason"]) == ("failed", "aborted")
    assert result["error"] == "aborted by SIGTERM"
    assert still_running(workers) == []


def test_signal_ends_a_write_that_nobody_reads() -> None:
    program = "text('x'.repeat(1 << 20)); await yield_control(); return 1"
    with start_nacre("exec", "--max-output-bytes", "2000000", "-e", program) as process:
        # One byte is there, and a pipe does not hold the rest.
        assert pipe_of(process.stdout).read(1) == b"x"
        workers = workers_of(process)
        process.send_signal(signal.SIGTERM)
        status = process.wait(PATIENCE_SECONDS)
        err = pipe_of(process.stderr).read()

    assert (status, err) == (143, b"nacre: aborted\n")
    assert still_running(workers) == []


def test_reader_that_goes_away_ends_the_program_quietly() -> None:
    program = "for (;;) { text('x'.repeat(1000)); await yield_control(); }"
    with start_nacre("exec", "--max-output-bytes", "10485760", "-e", program) as process:
        assert pipe_of(process.stdout).read(1) == b"x"
        workers = workers_of(process)
        pipe_of(process.stdout).close()
        status = process.wait(PATIENCE_SECONDS)
        err = pipe_of(process.stderr).read()

    assert (status, err) == (141, b"")
    assert still_running(workers) == []


def test_reader_that_is_gone_before_the_value_is_quiet() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with start_nacre("exec", "-e", "return 'x'.repeat(60000)", stdout=writing) as process:
        os.close(writing)
        _, err = process.communicate(timeout=PATIENCE_SECONDS)

    assert (process.returncode, err) == (141, b"")


def test_full_disk_is_said() -> None:
    with (
        open("/dev/full", "wb") as full,
        start_nacre("exec", "-e", "return 1", stdout=full.fileno()) as process,
    ):
        _, err = process.communicate(timeout=PATIENCE_SECONDS)

    assert process.returncode == 1
    assert err == b"nacre: cannot write to standard output: No space left on device\n"


def test_standard_streams_that_are_closed_do_no_harm() -> None:
    closed = f"exec {sys.executable} -m nacre.cli.main exec -e 'return missing()' <&- >&- 2>&-"

    done = subprocess.run(["sh", "-c", closed], timeout=PATIENCE_SECONDS, check=False)

    assert done.returncode == 1


def on_terminal(*arguments: str, environment: dict[str, str]) -> str:
    """What the command shows on a terminal: both its streams, lines ended as a terminal does."""
    ours, theirs = pty.openpty()
    try:
        subprocess.run(
            [sys.executable, "-m", "nacre.cli.main", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
            timeout=PATIENCE_SECONDS,
            check=False,
            env={**os.environ, "TERM": "xterm-256color", **environment},
        )
        os.close(theirs)
        return all_of(ours).decode()
    finally:
        os.close(ours)


def all_of(terminal: int) -> bytes:
    """What nobody writes to any more: it may come in pieces, and after the writer has ended."""
    shown = b""
    # An OSError is how Linux tells that nobody has the terminal open.
    with suppress(OSError):
        while piece := os.read(terminal, 65536):
            shown += piece
    return shown


def test_terminal_is_safe_from_control_characters() -> None:
    program = "text('a\\x1b]0;title\\x07b\\r\\u009b'); json('\\u009b'); throw new Error('\\x1b[2J')"

    shown = on_terminal("exec", "-e", program, environment={"NO_COLOR": "1"})

    lines = shown.split("\r\n")
    assert lines[:3] == [
        "a\\x1b]0;title\\x07b\\x0d\\x9b",
        '"\\u009b"',
        "failed: Error: \\x1b[2J",
    ]
    assert lines[-2].startswith("failed after ")
    assert not set(shown) & {"\x1b", "\x07", "\x9b"}


def test_value_has_colours_on_a_terminal() -> None:
    shown = on_terminal("exec", "-e", "return { a: 1 }", environment={"NO_COLOR": ""})

    assert '\x1b[1;34m"a"\x1b[0m' in shown


def test_pipe_gets_control_characters_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_here(capsys, "-e", "text('\\x1b[1m')") == (0, "\x1b[1m\n", "")


# The command itself.


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    import nacre

    assert main(["--version"]) == 0
    assert capsys.readouterr() == (f"nacre {nacre.__version__}\n", "")


def test_help_names_every_limit_with_its_range(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["exec", "--help"]) == 0

    shown = " ".join(capsys.readouterr().out.split())
    assert "[default: 10000; 100 to 60000]" in shown
    assert "Exit status: 0 completed, 1 failed, 2 bad usage, 3 waiting" in shown


def test_plain_run_does_not_import_what_it_does_not_need() -> None:
    check = (
        "import sys; from nacre.cli.main import main; main(['exec', '-e', 'return 1']);"
        "print([name for name in ('rich', 'wasmtime') if name in sys.modules])"
    )

    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)

    assert done.stdout == "1\n[]\n"
