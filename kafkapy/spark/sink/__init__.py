"""Writing topics, at least once or exactly once; writers.py has the protocol."""
