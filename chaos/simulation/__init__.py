"""The history of a job under a simulated clock: real protocol code, simulated storage, tasks, targets, rivals and crashes."""
