"""Tests of the `config` commands."""
