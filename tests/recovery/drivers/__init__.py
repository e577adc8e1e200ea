"""Real driver processes on real local storage, without Spark: they count numbers, checkpoint, and commit to SQLite."""
