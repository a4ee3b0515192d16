"""Committed offsets of consumer groups.

  store.py       the committed offsets of one partition of `__consumer_offsets`, and commits in progress
  commits.py     commits offsets, in a transaction or without one
  removals.py    deletes offsets, and groups that have no offsets left
  expiry.py      deletes offsets that are older than offsets.retention.minutes
  manager.py     the API for the request handlers

The C extensions do the rest: ext/offset_table stores the offsets, ext/offset_commit encodes keys and values of records,
and ext/offset_replay reads records from the log into the table.
"""
