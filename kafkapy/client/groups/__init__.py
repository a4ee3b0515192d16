"""Consumers that are members of a group: membership, partition assignment, and committed offsets."""
