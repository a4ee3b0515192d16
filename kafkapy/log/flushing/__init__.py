"""Flushing: which files are synced, in which order, and how often."""
