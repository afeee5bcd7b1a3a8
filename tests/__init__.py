"""Tests of Nacre; the folders mirror those of `src/nacre`."""
