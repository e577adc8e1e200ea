"""What is sent between driver and tasks, and between tasks: programs, assignments, rows and control messages."""
