"""Producers: records, transactions, and the requests that they have in flight."""
