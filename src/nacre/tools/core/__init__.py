"""Tools that ship with the package: files of a workspace, commands, web pages, messages."""
