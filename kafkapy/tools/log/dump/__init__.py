"""`kafkapy log dump`."""
