"""What happens to a job: typed events, and their delivery to listeners. The driver emits them."""
