"""The original consumer without a group, which fetches from given partitions and offsets."""
