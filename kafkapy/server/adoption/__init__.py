"""Adoption: log directories that Apache Kafka wrote become those of a kafkapy broker, without a record being copied.

All that a broker needs beside the logs is its metadata tree, and that is all that adoption writes: topics with their
ids and partitions, leader epochs, settings, and the end of the producer ids that were given out. It is made under
another name and renamed when it is complete, so a crash leaves the directories adopted or as they were.

`inventory` looks at the directories, `given` holds what is known from elsewhere (`settings_file`, `zookeeper`),
`plan` brings both together, `tree` writes the result.
"""
