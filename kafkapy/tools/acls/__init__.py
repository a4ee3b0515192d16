"""The command `kafkapy acls`."""
