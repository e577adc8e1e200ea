"""Which executor serves which slot: the one that has its state."""
