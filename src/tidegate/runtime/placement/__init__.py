"""Which executor serves which slot: the one that holds its state."""
