"""The file tools of a workspace."""
