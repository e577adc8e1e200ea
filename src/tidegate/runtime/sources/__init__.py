"""Knowledge about Spark's sources and about the directory of a streaming query."""
