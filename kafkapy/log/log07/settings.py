"""The settings of a Kafka 0.7 log."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kafkapy.log.config import HOUR_MS


class Settings(NamedTuple):
    """The settings of one log, with the defaults of Kafka 0.7. Each comment names the setting in its server.properties.

    In Kafka 0.7, the first five can also be set for single topics.
    """

    segment_bytes: int = 1 << 30  # log.file.size: a larger segment gets no more appends
    roll_ms: int = 168 * HOUR_MS  # log.roll.hours
    retention_ms: int = 168 * HOUR_MS  # log.retention.hours
    retention_bytes: int = -1  # log.retention.size; -1: no limit
    flush_ms: int = 3000  # log.default.flush.interval.ms
    flush_messages: int = 500  # log.flush.interval
    max_message: int = 1_000_000  # max.message.size: of a stored message's payload


SettingsOf = Callable[[str], Settings]  # returns the settings of a topic's logs
