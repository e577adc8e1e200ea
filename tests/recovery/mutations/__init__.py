"""Each rule of the protocol broken once in a copy of the code, and the number of seeds until the simulation sees it."""
