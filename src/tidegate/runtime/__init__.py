"""How Spark runs a graph: source stage, levels, tasks, epochs. The only package that imports pyspark."""
