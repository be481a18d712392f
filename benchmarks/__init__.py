"""Programs that measure the project on the machine at hand."""
