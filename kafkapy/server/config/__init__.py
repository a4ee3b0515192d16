"""The broker's settings: their table, checks, files, dynamic changes, and conversion for its parts."""
