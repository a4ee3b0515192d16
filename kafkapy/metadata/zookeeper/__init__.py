"""The metadata tree in ZooKeeper, with a cache of its nodes."""
