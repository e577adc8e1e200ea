"""A job's history under a simulated clock: the real protocol, simulated storage, tasks, targets, rivals and crashes."""
