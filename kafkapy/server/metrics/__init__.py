"""The definitions of the broker's metrics, a table for each subsystem, and the sources of their values."""
