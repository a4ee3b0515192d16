"""Measures kafkapy, Apache Kafka 3.9.1 and bare loops in one run: `python -m perf --help`."""
