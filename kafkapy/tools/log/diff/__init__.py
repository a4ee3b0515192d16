"""The command `kafkapy log diff`."""
