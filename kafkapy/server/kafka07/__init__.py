"""The part of the broker that serves clients of Kafka 0.7: a listener of its own, native logs, and 0.7's registry.

    requests    the five requests on the wire
    handler     what they do
    registry    /brokers/ids and /brokers/topics in ZooKeeper
    directories log.dir of 0.7 and log.dirs must not be mixed up
    part        creates, starts and stops all of it

The logs are in kafkapy.log.log07, the settings in kafkapy.server.config.kafka07. Nothing here is imported unless
kafkapy.kafka07.properties is set.
"""
