"""Which files and objects a checkpoint consists of, which of them checkpoints share, and what a task reports of its own."""
