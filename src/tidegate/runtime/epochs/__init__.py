"""One epoch on Spark: its DataFrame, where its tasks run, what they answer, and what follows from a failure."""
