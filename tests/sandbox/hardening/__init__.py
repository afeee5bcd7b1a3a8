"""Tests of the hardening: from inside a hardened process, and from outside through /proc."""
