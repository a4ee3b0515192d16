"""Records are flushed after a number of records or after a time, set for broker or topic and changed at any time.

Source: Kafka's UnifiedLog.append (flush.messages) and LogManager.flushDirtyLogs (flush.ms).
"""

import time

import pytest

from kafkapy.errors import Errors
from kafkapy.protocol.apis import CREATE_TOPICS, INCREMENTAL_ALTER_CONFIGS
from tests.harness.wire import Wire
from tests.server.requests import batch, make_topic, produce, start_broker

TOPIC, BROKER = 2, 4
OFTEN = {"log_flush_scheduler_interval_ms": "20"}


class Flushed:
    """A broker with the topic "t"."""

    def __init__(self, directory, **settings):
        self.server = start_broker(directory, **settings)
        self.wire = Wire(self.server.bootstrap_servers)
        make_topic(self.wire, "t")
        self.log = self.server.services.replicas.get("t", 0).log

    def send(self, *values):
        assert produce(self.wire, "t", batch(*values)).error_code == Errors.NONE

    def set(self, kind, name, key, value):
        make = INCREMENTAL_ALTER_CONFIGS.Request
        config = make.Resources.Configs(name=key, config_operation=0, value=value)
        resource = make.Resources(resource_type=kind, resource_name=name, configs=[config])
        (answer,) = self.wire.call(
            INCREMENTAL_ALTER_CONFIGS, 1, make(resources=[resource], validate_only=False)
        ).responses
        assert answer.error_code == Errors.NONE, answer.error_message

    def wait_until_flushed(self):
        deadline = time.monotonic() + 20
        while self.log.recovery_point < self.log.log_end_offset:
            assert time.monotonic() < deadline, f"flushed up to {self.log.recovery_point}"
            time.sleep(0.005)

    def end(self):
        self.wire.close()
        self.server.stop()


@pytest.fixture
def broker(tmp_path, request):
    running = Flushed(tmp_path, **getattr(request, "param", {}))
    yield running
    running.end()


def test_nothing_is_flushed_by_itself(broker):
    broker.send(b"a", b"b")
    assert broker.log.recovery_point == 0


@pytest.mark.parametrize("broker", [{"log_flush_interval_messages": "3"}], indirect=True)
def test_the_record_that_makes_the_number_full_flushes_all_before_its_answer(broker):
    broker.send(b"a", b"b")
    assert broker.log.recovery_point == 0
    broker.send(b"c")
    assert broker.log.recovery_point == 3
    broker.send(b"d", b"e", b"f", b"g")
    assert broker.log.recovery_point == 7


@pytest.mark.parametrize(
    ("kind", "name", "key"), [(TOPIC, "t", "flush.messages"), (BROKER, "", "log.flush.interval.messages")]
)
def test_flush_messages_may_change_while_the_broker_runs(broker, kind, name, key):
    broker.send(b"a")
    broker.set(kind, name, key, "1")
    broker.send(b"b")
    assert broker.log.recovery_point == 2


@pytest.mark.parametrize("broker", [{"log_flush_interval_messages": "1"}], indirect=True)
def test_flush_messages_of_a_topic_overrides_that_of_the_broker(broker):
    broker.set(TOPIC, "t", "flush.messages", "1000")
    broker.send(b"a")
    assert broker.log.recovery_point == 0


@pytest.mark.parametrize(
    "broker", [{"log_flush_interval_ms": "50"}, OFTEN, {"log_flush_interval_ms": "0"}], indirect=True
)
def test_records_are_flushed_after_flush_ms_without_another_append(broker):
    """log.flush.interval.ms or log.flush.scheduler.interval.ms is enough. log.initial.task.delay.ms delays neither."""
    broker.send(b"a")
    broker.wait_until_flushed()
    broker.send(b"b")
    broker.wait_until_flushed()


@pytest.mark.parametrize("broker", [{}, {"log_flush_interval_ms": "100000000"}], indirect=True)
@pytest.mark.parametrize(("kind", "name", "key"), [(TOPIC, "t", "flush.ms"), (BROKER, "", "log.flush.interval.ms")])
def test_flush_ms_may_change_while_the_broker_runs(broker, kind, name, key):
    broker.send(b"a")
    assert broker.log.recovery_point == 0
    broker.set(kind, name, key, "1")
    broker.wait_until_flushed()


def test_a_topic_created_with_flush_ms_is_flushed_in_that_time(broker):
    make = CREATE_TOPICS.Request
    config = make.Topics.Configs(name="flush.ms", value="100")
    topic = make.Topics(name="timed", num_partitions=1, replication_factor=1, configs=[config])
    (answer,) = broker.wire.call(CREATE_TOPICS, 7, make(topics=[topic], timeout_ms=10_000, validate_only=False)).topics
    assert answer.error_code == Errors.NONE, answer.error_message
    broker.log = broker.server.services.replicas.get("timed", 0).log
    assert produce(broker.wire, "timed", batch(b"a")).error_code == Errors.NONE
    broker.wait_until_flushed()
