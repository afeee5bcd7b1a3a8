"""An example of a plugin: tools, a hook and a namespace."""
