"""Other code bases' training and ours, in turns on the same machine."""
