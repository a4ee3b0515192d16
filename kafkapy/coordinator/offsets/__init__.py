"""Committed offsets: how far each group has come in each partition.

    store.py       those of one shard, and which of them are about to change
    commits.py     commit, also in a transaction: one step each
    removals.py    deletion, and the end of a group that has nothing left
    expiry.py      which offsets are too old
    manager.py     what the handlers call: finds the shard and runs the steps

The offsets themselves are in ext/offset_table, keys and values of their records in ext/offset_commit, and a load goes
from the log's bytes to the table in ext/offset_replay.
"""
