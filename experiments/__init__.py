"""The programs that a person runs."""
