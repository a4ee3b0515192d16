"""The metadata tree in a SQLite file."""
