"""Real servers for tests: on free loopback ports, in a directory of their own, ended by their process ids."""
