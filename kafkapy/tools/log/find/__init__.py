"""`kafkapy log find`."""
