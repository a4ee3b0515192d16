"""The command `kafkapy zk`."""
