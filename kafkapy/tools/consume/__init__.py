"""`kafkapy consume`."""
