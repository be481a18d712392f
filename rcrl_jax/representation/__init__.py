"""What an agent's representation has learned: similarities of pairs, and a linear probe."""
