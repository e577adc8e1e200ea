"""What runs in the driver: the user's handle on a job, its epochs one after the other, its checkpoints, its output."""
