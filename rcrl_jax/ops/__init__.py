"""Adam, with a kernel for the CPU; TensorFlow's Adam; Adafactor."""
