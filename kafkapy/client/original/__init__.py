"""Kafka's original clients (0.7 to 0.10) with their class names and properties, for old and new brokers.

connector: The consumer that forms groups through ZooKeeper.
producer: The producer, sync and async.
simple_consumer: The consumer without a group.
"""
