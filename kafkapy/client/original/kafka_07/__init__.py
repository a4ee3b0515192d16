"""The wire protocol of Kafka 0.7, for the original clients."""
