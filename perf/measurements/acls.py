"""One record per request with ACLs and without, and the time of a connection's first decision about a topic.

Two brokers of a kind are measured in turns, so that both see the same machine.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from contextlib import ExitStack
from statistics import median

from kafkapy.client.administration.acl_admin import creation
from kafkapy.protocol.apis import CREATE_ACLS
from kafkapy.security.acls.bindings import Binding, Entry, Pattern
from kafkapy.security.acls.index import index_of
from kafkapy.security.acls.rules import Client, decide
from perf import frames
from perf.brokers import Broker
from perf.cpu import used
from perf.measurement import KAFKAPY, Bench, Figures, Goal, Measurement, Row
from perf.raw_client import RawClient, check

SIZE = 100
WINDOW = 100
TOGETHER = 10
FEWEST = 2000  # requests of a round: fewer take too little CPU time to compare
ROUNDS = 9  # on each broker
ACLS, PREFIXED = 10_000, 1_000
TOPIC = "acls.measured"
ON, OFF = "on", "off"
SETTINGS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    # The first ACLs are created by a client that nobody has given a right yet.
    "allow.everyone.if.no.acl.found": "true",
}
KINDS = {"produce": "one record produced per request", "fetch": "one record fetched per request"}


def _rows_of(kind: str) -> list[Row]:
    what = KINDS[kind]
    return [
        *(Row(f"acls.{kind}.rate.{how}", f"{what}, ACLs {how}", "requests/s", "higher") for how in (OFF, ON)),
        *(Row(f"acls.{kind}.cpu.{how}", f"broker CPU per 100,000, {what}, ACLs {how}", "s", "lower", digits=2)
          for how in (OFF, ON)),
        Row(f"acls.{kind}.times", f"broker CPU with ACLs, {what}, median of pairs", "× without", "lower",
            Goal(1.02, None), digits=3),
    ]  # fmt: skip


class Acls(Measurement):
    name = "acls"
    about = f"one record of {SIZE} B per request with {ACLS:,} ACLs ({PREFIXED:,} prefixed) and without, in turns"
    quick = False
    rows = (
        *(row for kind in KINDS for row in _rows_of(kind)),
        Row("acls.first", "decision for a topic that the client has not used before, median", "µs", "lower", digits=1),
    )

    def run(self, bench: Bench, kind: str) -> Figures:
        count = max(bench.scale.requests // 5, FEWEST) // TOGETHER * TOGETHER
        many = bench.scale.requests >= 10_000
        acls = random_acls(ACLS if many else 100, PREFIXED if many else 10)
        found: Figures = {}
        with ExitStack() as ending:
            brokers = {
                how: ending.enter_context(bench.broker(kind, SETTINGS if how == ON else {})) for how in (OFF, ON)
            }
            clients = {how: ending.enter_context(RawClient(broker.port)) for how, broker in brokers.items()}
            for client in clients.values():
                client.create_topic(TOPIC)
            _create(clients[ON], acls)
            for what in KINDS:
                found |= _in_turns(what, brokers, clients, count)
        if kind == KAFKAPY:
            found["acls.first"] = first_decision_us(acls)
        return found


def random_acls(count: int, prefixed: int) -> list[Binding]:
    """Return ACLs of 200 users on topics, `prefixed` of them on prefixes of names, and some for TOPIC, which everybody
    may use because of a prefix."""
    rng = random.Random(39)
    words = ("orders", "billing", "users", "audit", "raw", "clean", "eu", "us", "shipping")

    def name() -> str:
        return ".".join(rng.choices(words, k=rng.randint(2, 5))) + f"-{rng.randrange(10_000)}"

    def entry() -> Entry:
        operation, permission = rng.choice(("READ", "WRITE", "DESCRIBE")), rng.choice(("ALLOW",) * 9 + ("DENY",))
        return Entry(f"User:app-{rng.randrange(200)}", "*", operation, permission)

    topics = [name() for _ in range(max(count // 4, 1))]
    found = {Binding(Pattern("TOPIC", TOPIC[:5], "PREFIXED"), Entry("User:*", "*", "ALL", "ALLOW"))}
    found |= {Binding(Pattern("TOPIC", TOPIC), entry()) for _ in range(5)}
    while len(found) < prefixed:
        found.add(Binding(Pattern("TOPIC", name()[: rng.randint(4, 30)], "PREFIXED"), entry()))
    while len(found) < count:
        found.add(Binding(Pattern("TOPIC", rng.choice(topics)), entry()))
    return sorted(found)


def _create(client: RawClient, acls: Sequence[Binding]) -> None:
    for at in range(0, len(acls), 500):
        creations = [creation(acl) for acl in acls[at : at + 500]]
        for result in client.ask(CREATE_ACLS, 3, CREATE_ACLS.Request(creations=creations)).results:
            check(result.error_code, "creating an ACL")


def _in_turns(what: str, brokers: dict[str, Broker], clients: dict[str, RawClient], count: int) -> Figures:
    batch = frames.batch(frames.plain_values(SIZE, 1))
    if what == "produce":
        frame, reply = frames.produce(TOPIC, batch, 1), clients[OFF].produce_once(frames.produce(TOPIC, batch, 1))
        clients[ON].produce_once(frame)
    else:
        fetch = frames.FetchFrame(TOPIC, len(batch))
        frame, reply = bytes(fetch.at(0)), fetch.head + len(batch)
    cpu: dict[str, list[float]] = {OFF: [], ON: []}
    rates: dict[str, list[float]] = {OFF: [], ON: []}
    for number in range(-1, ROUNDS):  # the first is for warming up
        for how in (OFF, ON) if number % 2 else (ON, OFF):
            with used(brokers[how].pid) as usage:
                seconds = _exchange(clients[how], frame, reply, count)
            if number >= 0:
                cpu[how].append(usage.cpu * 100_000 / count)
                rates[how].append(count / seconds)
    found = {f"acls.{what}.cpu.{how}": median(each) for how, each in cpu.items()}
    found |= {f"acls.{what}.rate.{how}": median(each) for how, each in rates.items()}
    pairs = [on / off for on, off in zip(cpu[ON], cpu[OFF], strict=True) if off]
    return found | ({f"acls.{what}.times": median(pairs)} if pairs else {})


def _exchange(client: RawClient, frame: bytes, reply: int, count: int) -> float:
    """Send a request `count` times with at most WINDOW in flight, and return seconds."""
    sends = frame * TOGETHER
    sent = received = 0
    began = time.perf_counter()
    while received < count * reply:
        while sent < count and sent * reply - received <= (WINDOW - TOGETHER) * reply:
            client.socket.sendall(sends)
            sent += TOGETHER
        client.discard(reply)
        received += reply
    return time.perf_counter() - began


def first_decision_us(acls: Sequence[Binding]) -> float:
    """Return the median time of a decision, in microseconds. Each is about another topic."""
    index, client = index_of(acls), Client("User:app-7", "10.0.0.1")
    times = []
    for pattern in {binding.pattern for binding in acls}:
        began = time.perf_counter()
        decide(index, client, "WRITE", "TOPIC", pattern.name, everyone_without_acls=False)
        times.append(time.perf_counter() - began)
    return median(times) * 1e6
