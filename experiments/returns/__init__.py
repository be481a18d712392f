"""Which readings of the return-contrastive task learn returns: a pre-registered study."""
