"""Code that runs in a Python worker: one slot of one level for one epoch. Imports neither pyspark nor the driver."""
