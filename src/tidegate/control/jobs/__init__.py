"""What is known of a job, running or read from storage, and the operations that it offers."""
