"""The producer state of a log: sequences, open transactions, snapshots, rebuilding, and verifications."""
