"""What is true about a job: storage, its log, the pure coordinator, metadata, clean-up."""
