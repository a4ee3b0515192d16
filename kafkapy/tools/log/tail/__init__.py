"""`kafkapy log tail`."""
