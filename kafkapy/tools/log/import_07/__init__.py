"""`kafkapy log import`: logs of Kafka 0.7."""
