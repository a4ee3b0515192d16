"""Kafka's own ConfigCommand (kafka-configs) shows and changes the broker's log levels."""

import re

import pytest

from tests.harness.brokers import Broker
from tests.harness.clients.base import Client
from tests.harness.kafka_tools import KafkaTools, Said

pytestmark = pytest.mark.other_runtime


class Loggers:
    """Runs `kafka-configs --entity-type broker-loggers` for one broker."""

    def __init__(self, tools: KafkaTools, broker: Broker, broker_id: int) -> None:
        self._tools = tools
        self._where = ("--bootstrap-server", broker.bootstrap, "--entity-type", "broker-loggers")
        self._broker_id = broker_id

    def run(self, *options: str) -> Said:
        return self._tools.run("kafka.admin.ConfigCommand", *self._where, "--entity-name", self._broker_id, *options)

    def levels(self) -> dict[str, str]:
        output = self.run("--describe")
        assert output.code == 0, output
        return dict(re.findall(r"^ *(\S+)=([A-Z]+) sensitive=false", output.out, re.MULTILINE))


@pytest.fixture
def loggers(tools: KafkaTools, broker: Broker, admin: Client) -> Loggers:
    (node,) = (number for number, _, _ in admin.cluster()["nodes"])
    return Loggers(tools, broker, node)


def test_levels_are_shown_and_changed(loggers: Loggers) -> None:
    before = loggers.levels()
    assert before["root"] == before["server.configs"] == "INFO"
    output = loggers.run("--alter", "--add-config", "server.configs=DEBUG,network=TRACE")
    assert output.code == 0, output
    try:
        changed = loggers.levels()
        assert changed["server.configs"] == "DEBUG"
        inside = {level for name, level in changed.items() if name == "network" or name.startswith("network.")}
        assert inside == {"TRACE"}
        assert changed["root"] == "INFO"
    finally:
        output = loggers.run("--alter", "--delete-config", "server.configs,network")
    assert output.code == 0, output
    assert loggers.levels() == before


def test_unknown_loggers_and_levels_are_refused(loggers: Loggers) -> None:
    for options, message in (
        (("--add-config", "no.such.logger=DEBUG"), "no.such.logger"),
        (("--add-config", "root=VERBOSE"), "must be one of TRACE, DEBUG, INFO, WARN, ERROR, FATAL"),
        (("--delete-config", "root"), "root has no logger above it"),
    ):
        output = loggers.run("--alter", *options)
        assert output.code != 0
        assert message in output.out + output.err
    assert loggers.levels()["root"] == "INFO"
