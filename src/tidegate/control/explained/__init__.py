"""Every error by its code, explained in Markdown: a file for each family."""
