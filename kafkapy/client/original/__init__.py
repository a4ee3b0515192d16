"""What Kafka's original clients offered (0.7 to 0.10), by their names and properties, for brokers old and new.

The consumer that finds its group in ZooKeeper: its subscriptions and their assignment.
The producer, sync and async: `producer.Producer`, what it sends in `producer_messages`.
The consumer without a group: `simple_consumer.SimpleConsumer`.
"""
