"""Code mode through its public door, and its parts."""
