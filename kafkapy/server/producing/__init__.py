"""Produce requests: joining their records into appends, and verifying the records of transactions."""
