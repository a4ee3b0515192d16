"""kafkapy: a Kafka-protocol broker for Linux in Python with Cython hot paths."""
