"""The log of a job: its entries, who owns it, which start is allowed, and what others have pinned."""
