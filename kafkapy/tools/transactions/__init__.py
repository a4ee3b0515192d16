"""The command `kafkapy transactions`."""
