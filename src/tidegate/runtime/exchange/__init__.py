"""What travels between driver and tasks, and from task to task: programs, assignments, rows and control messages."""
