"""Tests of the `sessions` commands."""
