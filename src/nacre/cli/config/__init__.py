"""`nacre config`: read, change and check the configuration as a whole."""
