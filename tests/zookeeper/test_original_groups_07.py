"""Groups on a cluster of Kafka 0.7: members that join, leave and are killed always share the partitions.

With KAFKAPY_KAFKA_07, as in harness.broker_07, every second member is the consumer of 0.7.2 itself.
`KAFKAPY_FAULT_ROUNDS=20 python -m pytest tests/zookeeper/test_original_groups_07.py -s` is the full length.
"""

import json
import os
import random
import re
import sys
from collections import Counter
from pathlib import Path

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from kafkapy.client.original.assignment import range_assignment
from kafkapy.client.original.producing.producer import Producer
from kafkapy.client.original.producing.producer_messages import KeyedMessage
from kafkapy.client.original.znodes.subscriptions import read_subscription
from tests.harness import original_child, toolchain
from tests.harness.broker_07 import REAL, Broker07
from tests.harness.brokers import Process
from tests.harness.waiting import eventually

TOPIC = "sent"
PARTITIONS = ["8-0", "8-1"]
OWN = "own"
KINDS = [OWN, "0.7.2"] if REAL else [OWN]
A_FEW = 3


class Member:
    def __init__(self, kind: str, directory: Path, connect: str, name: str) -> None:
        self.kind = kind
        if kind == OWN:
            settings = ["zk.connect=" + connect, "groupid=g", "consumerid=" + name, "say=value"]
            settings += ["zk.sessiontimeout.ms=2000", "rebalance.backoff.ms=300", "rebalance.retries.max=40"]
            settings += ["autocommit.interval.ms=200"]
            command = [sys.executable, original_child.__file__, TOPIC, "1", *settings]
        else:
            command = [toolchain.find("java"), "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", REAL]
            command += ["kafka.consumer.ConsoleConsumer", "--zookeeper", connect, "--group", "g", "--whitelist", TOPIC]
            command += ["--autocommit.interval.ms", "200"]
        self.process = Process(command, directory / f"{name}.log")

    @property
    def seen(self) -> Counter[str]:
        return Counter(line for line in self.process.lines if re.fullmatch(r"\d+", line))


def registered(zk: KazooClient) -> dict[str, bytes]:
    path = "/consumers/g/ids"
    return {name: zk.get(f"{path}/{name}")[0] for name in zk.get_children(path)}


def is_quiet(zk: KazooClient, live: int) -> bool:
    """Return True if `live` members are registered and own the partitions that the assignment gives them."""
    owners = f"/consumers/g/owners/{TOPIC}"
    try:
        members = registered(zk)
        owned = {name: zk.get(f"{owners}/{name}")[0].decode() for name in zk.get_children(owners)}
    except NoNodeError:
        return False
    streams = {name: read_subscription(data).streams_of([TOPIC]) for name, data in members.items()}
    computed = range_assignment(streams, {TOPIC: PARTITIONS})
    return len(members) == live and owned == {name: str(thread) for (_, name), thread in computed.items()}


def test_members_join_leave_and_are_killed(zk: KazooClient, connect: str, broker_07: Broker07, tmp_path: Path) -> None:
    rounds = int(os.environ.get("KAFKAPY_FAULT_ROUNDS", A_FEW))
    choose = random.Random(7)
    zk.create(f"/brokers/topics/{TOPIC}", b"", makepath=True)
    for name in PARTITIONS:
        zk.create(f"/consumers/g/offsets/{TOPIC}/{name}", b"0", makepath=True)
    members: list[Member] = []
    gone: list[Member] = []
    did: Counter[str] = Counter()
    produced = 0

    def join() -> Member:
        number = len(members) + len(gone)
        members.append(Member(KINDS[number % len(KINDS)], tmp_path, connect, f"m{number}"))
        eventually(lambda: len(registered(zk)) == len(members), seconds=60)
        return members[-1]

    def all_seen() -> Counter[str]:
        return sum((member.seen for member in members + gone), Counter())

    with Producer({"zk.connect": connect}) as producer:

        def produce() -> None:
            nonlocal produced
            keyed = [KeyedMessage(TOPIC, b"%d" % (produced + one), b"%d" % one) for one in range(100)]
            producer.send(keyed)
            produced += len(keyed)

        zk.ensure_path("/consumers/g/ids")
        produce()
        try:
            for _ in KINDS:
                join()
            for number in range(rounds):
                produce()
                what = choose.choice(["join"] * (len(members) < 3) + ["leave", "kill"] * (len(members) > 1))
                if what == "join":
                    member = join()
                else:
                    member = members.pop(choose.randrange(len(members)))
                    gone.append(member)
                    member.process.stop() if what == "leave" else member.process.kill()
                did[f"{what} {member.kind}"] += 1
                produce()
                step = f"round {number}: {what} {member.kind}"
                eventually(lambda: is_quiet(zk, len(members)), seconds=60, what=step)
                produce()
                eventually(lambda: len(all_seen()) == produced, seconds=60, what=step)
        finally:
            for member in members:
                member.process.kill()
    print(json.dumps({"rounds": rounds, "records": produced, "did": did, "again": all_seen().total() - produced}))
