"""Functions written for Spark's stateful operators, as operators of a job."""
