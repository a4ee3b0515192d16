"""The original producer, with a sync and an async mode."""
