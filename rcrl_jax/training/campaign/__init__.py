"""Campaigns: long lists of runs, one process and one core each, at the lowest priority."""
