"""The operators of a level as they run in one task: chained calls on lists of rows. Independent of Spark."""
