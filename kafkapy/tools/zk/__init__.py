"""`kafkapy zk`."""
