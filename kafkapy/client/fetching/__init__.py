"""Fetches the records of partitions, for consumers with and without a group."""
