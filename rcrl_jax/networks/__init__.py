"""Flax modules and initial values that several agent families share.

The first axis of all inputs is the batch. There is no axis of runs. The fleet batches over runs.
"""
