"""The wire formats of hosted models, seen from the server: what came in, and what goes out."""
