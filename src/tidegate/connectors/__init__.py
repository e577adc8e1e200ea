"""What rows are written to. Each client library has one home here."""
