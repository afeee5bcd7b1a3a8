"""Hostile programs, one file per kind of attack."""

import pytest

pytest.register_assert_rewrite("tests.security.attacks")
