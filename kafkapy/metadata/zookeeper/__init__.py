"""The metadata tree stored in ZooKeeper, with a cache of its nodes in memory."""
