"""Retention policies written by users."""

import pytest

from kafkapy.runtime.config_def import ConfigError
from kafkapy.server.config.apply import load_policy
from tests.harness.wire import Wire
from tests.server.requests import batch, end_offset, make_topic, produce, start_broker


class Everything:
    """A policy that deletes every segment, with a single reason."""

    reason = "the test says so"

    def rules(self, log, now_ms):
        yield self

    def breached(self, segment, next_base_offset):
        return next_base_offset is not None


class NoPolicy:
    pass


class Unready:
    def __init__(self):
        raise OSError("rules.json is missing")


def test_the_configured_policy_decides(tmp_path):
    server = start_broker(tmp_path, kafkapy_retention_policy=f"{__name__}:Everything")
    wire = Wire(server.bootstrap_servers)
    try:
        make_topic(wire, "short")
        log = server.services.replicas.get("short", 0).log
        for _ in range(3):
            produce(wire, "short", batch(b"x"))
            log.roll()
        assert log.delete_old_segments() == 3
        assert (log.log_start_offset, end_offset(wire, "short")) == (3, 3)
    finally:
        wire.close()
        server.stop()


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("no.such.module:Policy", "No module named"),
        (f"{__name__}:Missing", "no attribute 'Missing'"),
        (f"{__name__}:NoPolicy", "has a method rules"),
        (f"{__name__}:Unready", "OSError: rules.json is missing"),
    ],
)
def test_a_policy_that_cannot_be_used_is_named(name, rule):
    with pytest.raises(ConfigError, match=rule) as raised:
        load_policy(name)
    assert name in str(raised.value)


def test_without_a_name_the_policy_is_kafkas():
    assert load_policy("") is None
