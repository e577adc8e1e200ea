"""What a job shows to people: metrics, events, the report of a run, health."""
