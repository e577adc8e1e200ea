"""What tasks do for a checkpoint: upload a version, restore one, and share one among tasks."""
