"""Code that runs in the driver: the user's handle on a job, its sequence of epochs, its checkpoints, its output."""
