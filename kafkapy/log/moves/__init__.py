"""Move a log to another log directory while it is in use: a copy catches up with the log, and replaces it."""
