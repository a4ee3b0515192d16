"""A real broker for tests and scripts: `kafkapy.Broker`, and the fixtures of a pytest plugin."""
