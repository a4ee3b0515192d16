"""The original producer in a process that prints the fate of each message on a line: `stored 17` or `lost 18`.

`python producing_job.py sync|async SERVERS PROPERTY=VALUE ...` sends 0, 1, 2, ... to the topic t as fast as the
producer accepts them, until SIGTERM. Then it closes the producer and prints the number of sent messages and the
producer's own counts.
"""

import signal
import sys
import threading
from collections.abc import Sequence

from kafkapy.client.original.producing.producer import Producer
from kafkapy.client.original.producing.producer_hooks import CallbackHandler
from kafkapy.client.original.producing.producer_messages import FailedToSendMessage, KeyedMessage


class Said(CallbackHandler):
    def stored(self, messages: Sequence[KeyedMessage]) -> None:
        say("stored", messages)

    def lost(self, messages: Sequence[KeyedMessage], reason: Exception) -> None:
        say("lost", messages)


def say(what: str, messages: Sequence[KeyedMessage]) -> None:
    """Print the lines in one write, since a line that is cut off would show another number."""
    sys.stdout.write("".join(f"{what} {int(message.message)}\n" for message in messages))
    sys.stdout.flush()


def main(kind: str, servers: str, *properties: str) -> None:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    settings = dict(one.split("=", 1) for one in properties)
    callback = Said() if kind == "async" else None
    producer = Producer({"metadata.broker.list": servers, "producer.type": kind, **settings}, callback_handler=callback)
    number = 0
    while not stop.is_set():
        messages = [KeyedMessage("t", b"%d" % (number + one), b"%d" % one) for one in range(10)]
        number += len(messages)
        try:
            producer.send(messages)
        except FailedToSendMessage as error:
            gone = set(error.messages)
            say("lost", error.messages)
            messages = [one for one in messages if one not in gone]
        if kind == "sync":
            say("stored", messages)
    producer.close()
    sys.stdout.write(f"sent {number} failed {producer.stats['failed'] + producer.stats['dropped']}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
