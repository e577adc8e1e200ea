"""Reports to a lineage service what a job reads and writes. The only package that imports `openlineage`."""
