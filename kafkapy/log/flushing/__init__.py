"""Flushing: what is synced, in which order, and how often."""
