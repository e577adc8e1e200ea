"""One service behind the command line, REST and the web page."""
