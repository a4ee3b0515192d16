"""`kafkapy log diff`."""
