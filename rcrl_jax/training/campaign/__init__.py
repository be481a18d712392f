"""Campaigns: long lists of runs that proceed whenever a core is idle."""
