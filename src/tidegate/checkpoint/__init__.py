"""The durable truth about a job: its log, the pure coordinator, metadata, clean-up."""
