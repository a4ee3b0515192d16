"""The broker's metrics: a table of definitions for each subsystem, and the functions that read the values."""
