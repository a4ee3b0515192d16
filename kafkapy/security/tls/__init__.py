"""TLS: key and trust stores with Kafka's settings, and the names in certificates."""
