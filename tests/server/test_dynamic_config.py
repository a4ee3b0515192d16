"""Broker settings that change while it runs."""

from tests.server.conftest import start_broker


def test_dynamic_settings_count_again_after_a_restart(tmp_path):
    server = start_broker(tmp_path, broker_id=0)
    server.services.dynamic_config.alter(
        lambda _: {"max.connections": "3", "log.segment.bytes": "5000"}, per_broker=False, validate_only=False
    )
    assert server._network.limits._most == 3
    server.stop()
    server = start_broker(tmp_path, broker_id=0)
    assert server._network.limits._most == 3
    assert server.services.log_manager.defaults.segment_bytes == 5000
    server.stop()
