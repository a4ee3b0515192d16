"""Writing rows to topics, at least once or exactly once. writers.py describes the protocol."""
