"""Tests of Tool Search."""
