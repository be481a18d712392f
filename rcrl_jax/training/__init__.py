"""Training: the fleet, the loop, and the services around it."""
