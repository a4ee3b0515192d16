"""The original consumer, whose groups are formed through ZooKeeper."""
