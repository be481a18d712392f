"""The measurements of `experiments/theory.py`: plain numbers, ready for JSON.

Every study derives its randomness from fixed seeds, so equal scales give equal numbers.
"""
