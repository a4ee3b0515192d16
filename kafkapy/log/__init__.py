"""The log on disk: segments, indexes, producer state, leader epochs, recovery, retention and the log manager.

Files are byte for byte those of Apache Kafka 3.9 (ZooKeeper mode). This package does not depend on sockets, requests or
metadata; callers pass in the clock, the scheduler and the file layer.
"""
