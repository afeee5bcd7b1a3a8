"""Tests of `nacre.gateway.openai`."""
