"""`kafkapy topics`."""
