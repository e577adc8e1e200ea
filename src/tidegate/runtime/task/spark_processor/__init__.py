"""Functions written for Spark's own state API as they run in one task. Imports no pyspark."""
