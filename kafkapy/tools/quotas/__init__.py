"""The command `kafkapy quotas`."""
