"""A real broker for tests and scripts: `kafkapy.Broker`, and the fixtures of the pytest plugin."""
