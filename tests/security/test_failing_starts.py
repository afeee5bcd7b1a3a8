"""A start of the sandbox in which a call fails never leads to a worker without its protections."""

import errno
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.compiled_modules import copy_compiled_modules
from tests.sandbox.hardening.runs import bpf

pytestmark = pytest.mark.skipif(bpf() is None, reason="no seccomp filter can be compiled here")


def run_cases(kind: str, cache: Path) -> list[Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.security.failing_starts", kind, str(cache)],
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def test_each_call_of_the_hardening_can_fail_without_hiding_a_missing_protection(
    tmp_path: Path,
) -> None:
    outcomes = run_cases("calls", tmp_path)
    assert len(outcomes) > 100
    # The filter answers with EPERM. A process without it is never reported as protected.
    unprotected = [it for it in outcomes if not it["unmet"] and it["errno"] != errno.EPERM]
    assert unprotected == []
    assert {name for it in outcomes for name in it["unmet"]} == {"seccomp", "landlock"}


def test_with_any_number_of_descriptors_no_program_runs_without_the_filter(
    tmp_path: Path,
) -> None:
    copy_compiled_modules(tmp_path)
    outcomes = run_cases("descriptors", tmp_path)
    assert {mode for it in outcomes for mode in it["modes"]} == {"2"}
    assert not outcomes[0]["isCompleted"]
    assert outcomes[-1]["isCompleted"]
