"""A shop, end to end: `python -m examples.showcase`."""
