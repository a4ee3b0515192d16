"""The original consumer that forms groups through ZooKeeper."""
