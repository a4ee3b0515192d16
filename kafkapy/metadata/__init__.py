"""Cluster metadata: a tree of versioned nodes like that of ZooKeeper, and the registries of brokers, topics and
settings stored in the tree."""
