"""The programs to run from the command line."""
