"""The command `kafkapy mirror`."""
