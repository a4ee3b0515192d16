"""The nodes of brokers, topics and groups in ZooKeeper, as the original clients use them."""
