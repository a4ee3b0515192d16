"""The command `kafkapy log export`."""
