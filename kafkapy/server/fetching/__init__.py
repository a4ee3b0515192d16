"""Fetch sessions, and the choice of the pool that reads for a request."""
