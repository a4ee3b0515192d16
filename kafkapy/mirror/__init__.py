"""Mirroring: copies topics of one or more source clusters to a target cluster, as members of a group in each source.

    source = read_source({"bootstrap.servers": "127.0.0.1:9092", "group.id": "mirror"})
    target = read_target({"bootstrap.servers": "127.0.0.1:9093"})
    with Mirror([source], target, Whitelist("orders.*"), MirrorOptions()) as mirror:
        while mirror.failure is None:  # leaving the block stops the mirror, and raises the failure
            time.sleep(1)

The command `kafkapy mirror` does this. Mirroring has the features of Kafka's MirrorMaker of 0.8 to 3.9, and more.
"""
