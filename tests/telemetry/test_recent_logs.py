"""The last lines of the log, for support bundles."""

import logging

import pytest

from nacre.telemetry import keep_recent_logs

SECRET = "sk-live-1234567890abcdefghijklmnopqrst"


def test_the_last_lines_are_kept_without_secrets(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("nacre.test")
    with keep_recent_logs() as logs:
        for number in range(1_200):
            logger.warning("line %d of %s", number, SECRET)
        logger.error("x" * 10_000)
    logger.warning("after the block")
    lines = logs.to_text().splitlines()
    assert len(lines) == 1_000
    assert "WARNING nacre.test: line 201 of" in lines[0]
    assert max(map(len, lines)) == 2_000
    assert SECRET not in logs.to_text()
    assert "after the block" not in logs.to_text()
