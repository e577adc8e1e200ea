"""Reporters: listeners that send what they hear to other systems. Each has a folder, and alone imports its client library."""
