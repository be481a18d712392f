"""The studies of `experiments/theory.py`, functions that return numbers for JSON.

All random seeds are fixed, so the same scale gives the same numbers.
"""
