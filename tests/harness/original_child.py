"""kafkapy's member of a group in ZooKeeper, with the arguments and the output of zookeeper/java/GroupMember.java.

With the setting say=value the process prints the values of the records instead of their positions.
"""

import signal
import sys
import threading

from kafkapy.client.original.consuming.connector import ConsumerConnector
from kafkapy.client.original.consuming.streams import Stream
from kafkapy.client.original.filters import Whitelist


def main(topic: str, streams: str, *settings: str) -> None:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    properties = dict(one.split("=", 1) for one in settings)
    values = properties.pop("say", "") == "value"
    with ConsumerConnector(properties) as connector:
        if topic.startswith("^"):
            streams_of_topic = connector.create_message_streams_by_filter(Whitelist(topic[1:]), int(streams))
        else:
            streams_of_topic = connector.create_message_streams({topic: int(streams)})[topic]
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        threads = [threading.Thread(target=say, args=(stream, values)) for stream in streams_of_topic]
        for thread in threads:
            thread.start()
        stop.wait()
    for thread in threads:
        thread.join()


def say(stream: Stream, values: bool) -> None:
    for record in stream:
        place = f"{record.topic} {record.partition} {record.offset}"
        sys.stdout.write(f"{(record.value or b'').decode() if values else place}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
