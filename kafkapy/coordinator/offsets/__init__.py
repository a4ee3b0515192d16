"""Committed offsets.

  store.py       the committed offsets of one shard, and commits in progress
  commits.py     the steps that commit offsets, in a transaction or not
  removals.py    the steps that delete offsets, and groups with them
  expiry.py      offsets.retention.minutes
  manager.py     what the request handlers call

The extensions have the rest: ext/offset_table stores the offsets, ext/offset_commit encodes keys and values, and
ext/offset_replay reads them from the log's bytes into the table.
"""
