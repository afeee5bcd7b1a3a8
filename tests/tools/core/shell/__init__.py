"""Commands of the machine."""
