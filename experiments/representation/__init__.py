"""A study of finished runs: similarities, held-out pairs and a linear probe (RCRL, section 5.2)."""
