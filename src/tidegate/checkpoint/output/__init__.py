"""Output between its epoch and its target: what waits, who commits it and when, and rows that are staged."""
