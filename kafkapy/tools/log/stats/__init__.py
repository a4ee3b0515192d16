"""The command `kafkapy log stats`."""
