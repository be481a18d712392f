"""Segment replay, NumPy-backed and vectorised over runs."""
