"""`kafkapy log export`."""
