"""Measures SimPLe's model against predictors without dynamics, and its policy against nulls."""
