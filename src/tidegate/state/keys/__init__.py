"""The bytes of keys, their hash, and the key groups that follow from it."""
