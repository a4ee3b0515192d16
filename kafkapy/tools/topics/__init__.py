"""The command `kafkapy topics`."""
