"""Retention: which segments are deleted, and their deletion. A policy of your own implements `RetentionPolicy`."""

from kafkapy.log.retention.policy import (
    BelowLogStart,
    KafkaRetention,
    LogView,
    RetentionPolicy,
    Rule,
    TooLarge,
    TooOld,
)

__all__ = ["BelowLogStart", "KafkaRetention", "LogView", "RetentionPolicy", "Rule", "TooLarge", "TooOld"]
