"""What is on disk: segments, indexes, producer state, leader epochs, recovery, retention and the log manager.

Files are byte for byte those of Apache Kafka 3.9 (ZooKeeper mode). This package knows nothing of sockets,
requests or metadata; callers hand in a clock, a scheduler and the file layer.
"""
