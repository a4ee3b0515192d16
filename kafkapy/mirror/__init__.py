"""Mirroring: topics of one or more source clusters, copied into a target cluster as members of a group of the source.

    source = read_source({"bootstrap.servers": "127.0.0.1:9092", "group.id": "mirror"})
    target = read_target({"bootstrap.servers": "127.0.0.1:9093"})
    with Mirror([source], target, Whitelist("orders.*"), MirrorOptions()) as mirror:
        mirror.wait()

`kafkapy mirror` is this on the command line. It does what Kafka's MirrorMaker of 0.8 to 3.9 does, and more on request.
"""
