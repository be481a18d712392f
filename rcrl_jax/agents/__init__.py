"""Pure-functional agents."""
