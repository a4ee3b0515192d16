"""Code that several commands use: options, errors, tables, times and the formats of a record."""
