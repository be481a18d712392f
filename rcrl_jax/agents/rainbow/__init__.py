"""Data-efficient C51 Rainbow."""
