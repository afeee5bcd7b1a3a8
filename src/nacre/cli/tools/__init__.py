"""`nacre tools`: find, read and call the tools of the configuration."""
