"""Sweeps: many runs, planned as fleets and carried out by processes, here or on a Ray cluster."""
