"""The command `kafkapy log`: offline tools for log directories and segment files."""
