"""The command `kafkapy log dump`."""
