"""`kafkapy log stats`."""
