"""What the user writes: jobs, streams, functions and declarations of state. Builds a graph; runs nothing by itself."""
