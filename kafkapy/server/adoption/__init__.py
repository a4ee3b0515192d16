"""Adoption: turns log directories of Apache Kafka into those of a kafkapy broker, without copying records.

In addition to the logs, a kafkapy broker needs only a metadata tree, so adoption writes nothing but that tree: topics
with their ids and partitions, leader epochs, settings, and the highest producer id that was allocated. The tree is
created under another name and renamed when it is complete, so a crash leaves the directories either adopted or
unchanged.

`inventory` reads the directories, `knowledge` holds the metadata from other sources (read by `settings_file` and
`zookeeper`), `plan` combines both, and `tree` writes the result.
"""
