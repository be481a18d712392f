"""Adam, with a kernel for the CPU."""
