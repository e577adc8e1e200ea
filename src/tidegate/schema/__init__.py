"""Types of columns, DDL, key values, and rows on their way in and out. Pure data."""
