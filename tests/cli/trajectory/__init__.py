"""Tests of the `trajectory` commands."""
