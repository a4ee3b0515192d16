"""Adoption: turns log directories of Apache Kafka into those of a kafkapy broker, without copying records.

A broker needs only its metadata tree in addition to the logs, so adoption writes nothing else: topics with their ids
and partitions, leader epochs, settings, and the highest producer id that was allocated. The tree is created under
another name and renamed when it is complete, so a crash leaves the directories either adopted or unchanged.

`inventory` reads the directories, `knowledge` holds what is known from elsewhere (read by `settings_file` and
`zookeeper`), `plan` combines both, and `tree` writes the result.
"""
