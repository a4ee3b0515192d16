"""`kafkapy transactions`."""
