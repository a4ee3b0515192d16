"""The command `kafkapy log tail`."""
