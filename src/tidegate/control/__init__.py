"""One service behind the command line and REST."""
