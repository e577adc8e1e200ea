"""The life of a run in the driver: launch, attempts, restarts, rescaling, the end, and the user's handle on it."""
