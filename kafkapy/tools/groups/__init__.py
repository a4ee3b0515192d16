"""`kafkapy groups`."""
