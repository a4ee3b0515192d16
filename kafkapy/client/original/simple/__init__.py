"""The original consumer without a group."""
