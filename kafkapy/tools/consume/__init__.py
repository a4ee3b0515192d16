"""The command `kafkapy consume`."""
