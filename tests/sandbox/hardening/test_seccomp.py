"""The filter's bytes: compiled, named for a cache, and checked before they are installed."""

import errno
import os
import sys

import pytest

from nacre.sandbox.hardening import linux, seccomp
from nacre.sandbox.hardening.linux import NotApplied
from nacre.sandbox.hardening.seccomp import ALLOWED, ALLOWED_WITH_CONDITIONS, FATAL
from tests.sandbox.hardening.runs import bpf

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="seccomp is of Linux")


@pytest.mark.skipif(bpf() is None, reason="no seccomp filter can be compiled here")
def test_the_same_tables_give_the_same_bytes() -> None:
    assert seccomp.compile_filter() == bpf()


def test_other_tables_or_another_version_give_another_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys = [seccomp.filter_cache_key(), seccomp.filter_cache_key()]
    monkeypatch.setattr(seccomp, "ALLOWED", ALLOWED[1:])
    keys.append(seccomp.filter_cache_key())
    monkeypatch.setattr(seccomp, "FILTER_VERSION", "another")
    keys.append(seccomp.filter_cache_key())
    assert (keys[0] == keys[1], len(set(keys))) == (True, 3)


def test_no_call_is_both_allowed_and_fatal() -> None:
    conditional = {name for name, _ in ALLOWED_WITH_CONDITIONS}
    assert set(ALLOWED) & conditional | (set(ALLOWED) | conditional) & set(FATAL) == set()


def test_without_pyseccomp_the_reason_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyseccomp", None)
    with pytest.raises(seccomp.FilterNotCompiledError, match="pyseccomp does not load"):
        seccomp.compile_filter()


@pytest.mark.parametrize("program", [b"", b"short", bytes(8), bytes(8 * 5000)])
def test_bytes_that_are_no_filter_are_not_installed(
    monkeypatch: pytest.MonkeyPatch, program: bytes
) -> None:
    def answer(*arguments: int) -> int:
        assert not arguments[-1], "a broken filter reached the kernel"
        raise OSError(errno.EFAULT, os.strerror(errno.EFAULT))

    monkeypatch.setattr(linux, "system_call", answer)
    with pytest.raises(NotApplied):
        seccomp.install_filter(program)
