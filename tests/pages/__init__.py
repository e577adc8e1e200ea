"""Programs that write pages of `docs` from the code; each says in its first lines how it is called."""
