"""Cluster metadata: a tree of versioned nodes like ZooKeeper's, and the registries of brokers, topics and settings in
it."""
