"""Kafka's original clients (0.7 to 0.10) with their class names and properties, for old and new brokers.

consuming: The consumer that forms groups through ZooKeeper.
producing: The producer, sync and async.
simple: The consumer without a group.
kafka_07: The protocol of brokers of Kafka 0.7.
znodes: The nodes of brokers, topics and groups in ZooKeeper.
"""
