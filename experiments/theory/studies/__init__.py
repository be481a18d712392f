"""The studies of `python -m experiments.theory`: functions of a scale that return numbers for JSON.

All random seeds are fixed, so the same scale gives the same numbers.
"""
