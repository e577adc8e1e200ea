"""State on a host's local disk: its root, private directories, and one directory for each version."""
