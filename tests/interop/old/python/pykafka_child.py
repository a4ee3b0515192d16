"""Answers each JSON request, a line of standard input, with a JSON line, by means of pykafka.

It runs in its own environment, since pykafka needs a kazoo that is too old for everything else.
"""

import base64
import json
import sys

from pykafka import KafkaClient
from pykafka.common import CompressionType, OffsetType

CODECS = {"none": CompressionType.NONE, "gzip": CompressionType.GZIP, "snappy": CompressionType.SNAPPY}


def unpack(value):
    return None if value is None else base64.b64decode(value)


def pack(value):
    return None if value is None else base64.b64encode(value).decode()


def produce(client, topic, codec, records, **_):
    place = client.topics[topic]
    pykafka_producer = place.get_producer(
        compression=CODECS[codec], required_acks=-1, linger_ms=50, delivery_reports=True, max_retries=0
    )
    with pykafka_producer as producer:
        for record in records:
            producer.produce(unpack(record["value"]), partition_key=unpack(record["key"]))
        reports = [producer.get_delivery_report(timeout=30) for _ in records]
    for _, error in reports:
        if error is not None:
            raise error
    return [message.offset for message, _ in reports]


def fetch(client, topic, start, end, size, **_):
    place = client.topics[topic]  # kept, as its partitions do not keep a reference to it
    partition = place.partitions[0]
    consumer = place.get_simple_consumer(
        partitions=[partition], auto_commit_enable=False, fetch_message_max_bytes=size, auto_start=False
    )
    consumer.start()
    try:
        # reset_offsets takes the last offset that was read. -1 would mean the end.
        consumer.reset_offsets([(partition, start - 1 if start else OffsetType.EARLIEST)])
        found = []
        while len(found) < end - start:
            message = consumer.consume()
            if start <= message.offset < end:
                key, value = pack(message.partition_key), pack(message.value)
                found.append({"offset": message.offset, "timestamp": -1, "key": key, "value": value})
        return found
    finally:
        consumer.stop()


OPS = {"produce": produce, "fetch": fetch}


def main():
    client = KafkaClient(hosts=sys.argv[1])
    for line in sys.stdin:
        request = json.loads(line)
        try:
            client.update_cluster()
            answer = {"result": OPS[request.pop("op")](client, **request)}
        except Exception as error:
            answer = {"error": getattr(error, "ERROR_CODE", -1), "message": repr(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
