"""One term of ownership: checkpoints from the request to the completed entry, and the output that waits for them."""
