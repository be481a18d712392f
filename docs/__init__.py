"""What draws the figures of the documents, and builds their site."""
