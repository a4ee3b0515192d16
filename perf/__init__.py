"""Measures kafkapy beside Apache Kafka 3.9.1 and beside bare loops, in one run: `python -m perf --help`."""
