"""`kafkapy mirror`."""
