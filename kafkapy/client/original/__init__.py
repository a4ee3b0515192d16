"""The consumer that Kafka began with, which finds its group in ZooKeeper (0.7 to 0.10)."""
