"""The command `kafkapy groups`."""
