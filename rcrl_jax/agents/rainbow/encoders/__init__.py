"""Encoders of Rainbow, one for each kind of observation."""
