"""Carries the state and the positions of a Spark query into a savepoint: `tidegate import spark CHECKPOINT`."""
