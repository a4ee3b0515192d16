"""The command `kafkapy partitions`."""
