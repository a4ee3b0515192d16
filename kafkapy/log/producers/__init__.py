"""The producer state of a log: the sequences and open transactions of its producers, and their snapshots."""
