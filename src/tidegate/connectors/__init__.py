"""What rows are read from and written to. Each client library has one home here."""
