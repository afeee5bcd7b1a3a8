"""`nacre tools` as a person uses it."""
