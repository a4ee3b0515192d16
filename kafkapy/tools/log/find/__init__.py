"""The command `kafkapy log find`."""
