"""Producers with and without transactions, and the Produce requests that they have in flight."""
