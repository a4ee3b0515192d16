"""Fetch sessions, and the choice of the thread pool that reads from disk for a fetch request."""
