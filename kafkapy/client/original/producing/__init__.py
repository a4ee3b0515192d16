"""The original producer, sync and async."""
