"""When a checkpoint is taken, what is in progress, and what follows from each answer. Pure, without threads."""
