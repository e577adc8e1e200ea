"""Real servers for tests: each is started on free loopback ports, in a directory of its own, and ended by its process id."""
