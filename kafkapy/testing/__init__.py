"""Real brokers for tests and scripts: `kafkapy.Broker`, `kafkapy.Cluster`, and the fixtures of a pytest plugin."""
