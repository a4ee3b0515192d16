"""The command `kafkapy users`."""
