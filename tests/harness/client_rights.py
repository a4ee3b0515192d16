"""The errors that real clients raise when they lack one of the rights that they need. The same scenarios run with
Apache Kafka, which is recorded (tests/data/authorization/clients-3.9.1.jsonl), and with kafkapy.

The clients are User:ANONYMOUS on a listener without logins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

from kafkapy.server.admission import CLUSTER, Action
from tests.harness.authorization import Acls
from tests.harness.clients.base import Client, ClientError, Record
from tests.harness.clients.registry import Clients

NAMES = ("java-3.9.1", "confluent-kafka", "kafka-python", "aiokafka", "franz-go")
SOURCE, TARGET = "flights", "loud-flights"
RECORDS = [Record(b"AA1"), Record(b"UA2")]


class Scenario(NamedTuple):
    """Something that clients do, with exactly the rights that it needs. `run` gets the client and how long it may wait
    for records. `{client}` in the name of a resource is the
    name of the client. `needs` are the abilities of the client."""

    name: str
    rights: Sequence[Action]
    run: Callable[[Client, float], Any]
    needs: frozenset[str]


def scenario(name: str, run: Callable[[Client, float], Any], *rights: str, needs: str) -> Scenario:
    """Return a scenario. Each right is "OPERATION TYPE NAME"."""
    actions = [Action(*right.split(" ", 2)) for right in rights]
    return Scenario(name, actions, run, frozenset(needs.split()))


def _transaction(client: Client, _: float) -> Any:
    name = f"tx-{client.name}"
    client.open_transactional(name)
    try:
        return client.transact(name, SOURCE, RECORDS, "commit")
    finally:
        _close(client, name)


def _copy(client: Client) -> Any:
    name = f"tx-{client.name}"
    client.open_transactional(name)
    try:
        return client.copy_in_transaction(name, f"copy-{client.name}", SOURCE, TARGET, 1, "commit")
    finally:
        _close(client, name)


def _close(client: Client, name: str) -> None:
    try:
        client.close_transactional(name)
    except ClientError:
        pass  # closing reports the error of the transaction once more


CREATE_ON_CLUSTER = f"CREATE CLUSTER {CLUSTER}"
SCENARIOS = [
    scenario("produce", lambda c, _: len(c.produce(SOURCE, RECORDS)), f"WRITE TOPIC {SOURCE}", needs="produce"),
    scenario(
        "produce idempotently",
        lambda c, _: len(c.produce(SOURCE, RECORDS, idempotent=True)),
        f"WRITE TOPIC {SOURCE}",
        needs="produce",
    ),
    scenario(
        "produce in a transaction",
        _transaction,
        f"WRITE TOPIC {SOURCE}",
        "WRITE TRANSACTIONAL_ID tx-{client}",
        needs="transact",
    ),
    scenario(
        "consume a topic",
        lambda c, patience: len(c.consume(f"g-{c.name}", SOURCE, 1, patience)),
        f"READ TOPIC {SOURCE}",
        "READ GROUP g-{client}",
        needs="consume",
    ),
    scenario(
        "consume by a regular expression",
        lambda c, patience: len(c.consume(f"g-{c.name}", SOURCE, 1, patience, by_pattern=True)),
        f"READ TOPIC {SOURCE}",
        "READ GROUP g-{client}",
        needs="consume",
    ),
    scenario(
        "consume a partition",
        lambda c, _: len(c.fetch(SOURCE, {0: 0}, {0: 1})[0]),
        f"READ TOPIC {SOURCE}",
        "READ GROUP unused",  # librdkafka looks for the coordinator of the group that it has to be given
        needs="fetch",
    ),
    scenario(
        "copy in a transaction",
        lambda c, _: len(_copy(c)),
        f"READ TOPIC {SOURCE}",
        "READ GROUP copy-{client}",
        f"WRITE TOPIC {TARGET}",
        "WRITE TRANSACTIONAL_ID tx-{client}",
        needs="copy_in_transaction",
    ),
    scenario(
        "create a topic",
        lambda c, _: c.create_topic(f"new-{c.name}", 1, validate_only=True),
        CREATE_ON_CLUSTER,
        needs="create_topic",
    ),
    scenario(
        "delete a topic",
        lambda c, _: c.delete_topic(f"old-{c.name}"),
        "DELETE TOPIC old-{client}",
        needs="delete_topic",
    ),
    scenario(
        "describe a topic", lambda c, _: len(c.partitions_of(SOURCE)), f"DESCRIBE TOPIC {SOURCE}", needs="partitions_of"
    ),
    scenario(
        "describe the settings of a topic",
        lambda c, _: bool(c.topic_configs(SOURCE)),
        f"DESCRIBE_CONFIGS TOPIC {SOURCE}",
        needs="topic_configs",
    ),
    scenario(
        "describe the settings of the broker",
        lambda c, _: bool(c.broker_configs(0)),
        f"DESCRIBE_CONFIGS CLUSTER {CLUSTER}",
        needs="broker_configs",
    ),
    scenario(
        "alter the settings of a topic",
        lambda c, _: c.set_topic_configs(SOURCE, {"retention.ms": "-1"}),
        f"ALTER_CONFIGS TOPIC {SOURCE}",
        needs="set_topic_configs",
    ),
    scenario(
        "delete records",
        lambda c, _: c.delete_records(SOURCE, {0: 0}),
        f"DELETE TOPIC {SOURCE}",
        needs="delete_records",
    ),
    scenario(
        "elect a leader", lambda c, _: c.elect_leaders(SOURCE, [0]), f"ALTER CLUSTER {CLUSTER}", needs="elect_leaders"
    ),
    scenario(
        "describe producers", lambda c, _: bool(c.producers(SOURCE, 0)), f"READ TOPIC {SOURCE}", needs="producers"
    ),
    scenario(
        "describe log directories",
        lambda c, _: len(c.log_dirs(SOURCE)),
        f"DESCRIBE CLUSTER {CLUSTER}",
        needs="log_dirs",
    ),
]
# (scenario, missing right, client) of clients that try again for ever, or for a minute.
ENDLESS = {
    ("consume a partition", f"READ TOPIC {SOURCE}", "confluent-kafka"),
    ("consume a partition", f"READ TOPIC {SOURCE}", "kafka-python"),
    ("consume a partition", f"READ TOPIC {SOURCE}", "aiokafka"),
    ("copy in a transaction", f"READ TOPIC {SOURCE}", "kafka-python"),
}
# (scenario, missing right, client) of consumers that wait for records without an error.
QUIET = {
    *(("consume a topic", f"READ TOPIC {SOURCE}", name) for name in ("kafka-python", "aiokafka")),
    *(
        ("consume by a regular expression", f"READ TOPIC {SOURCE}", name)
        for name in ("java-3.9.1", "kafka-python", "aiokafka", "franz-go")
    ),
}
QUIET_S, PATIENCE_S = 1.5, 30.0
# librdkafka's name of a broker: "bootstrap" instead of the id, if the request went out before the metadata came.
_BROKER = re.compile(r"127\.0\.0\.1:PORT/(\d+|bootstrap)")


def prepare(admin: Client) -> None:
    """Create the topics as a client that may do everything."""
    for topic in (SOURCE, TARGET, *(f"old-{name}" for name in NAMES)):
        admin.create_topic(topic, 1)
    admin.produce(SOURCE, RECORDS)
    # The internal topics exist from here on.
    admin.consume("first", SOURCE, 1, PATIENCE_S)
    admin.open_transactional("first")
    admin.transact("first", SOURCE, RECORDS, "commit")
    admin.close_transactional("first")


def outcomes(clients: Clients, acls: Acls) -> Iterator[tuple[str, str, str, str]]:
    """Run all scenarios with all clients: first without each of the rights, one by one, then with all of them. Yield
    (scenario, right that is missing or "", client, outcome)."""
    running = [clients[name] for name in NAMES]
    # All denials come first: clients that live long, such as those of franz-go, keep metadata for some ms.
    steps = [(one, missing) for one in SCENARIOS for missing in one.rights]
    with ThreadPoolExecutor(len(NAMES)) as pool:
        for one, missing in [*steps, *((one, None) for one in SCENARIOS)]:
            without = "" if missing is None else " ".join(missing)
            able = [
                client
                for client in running
                if one.needs <= client.abilities and (one.name, without, client.name) not in ENDLESS
            ]
            acls.allow_only(
                Action(right.operation, right.resource_type, right.name.format(client=name))
                for right in one.rights
                if right is not missing
                for name in (NAMES if "{" in right.name else NAMES[:1])
            )
            patience = [QUIET_S if (one.name, without, client.name) in QUIET else PATIENCE_S for client in able]
            results = pool.map(partial(_outcome, one), able, patience)
            for client, outcome in zip(able, results, strict=True):
                yield one.name, without, client.name, outcome


def _outcome(one: Scenario, client: Client, patience_s: float) -> str:
    try:
        result = one.run(client, patience_s)
    except ClientError as error:
        return _BROKER.sub("127.0.0.1:PORT/ID", re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT", str(error)))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "done" if result is None else f"done: {result}"
