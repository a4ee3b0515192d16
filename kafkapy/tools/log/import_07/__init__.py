"""The command `kafkapy log import`, which imports logs of Kafka 0.7."""
