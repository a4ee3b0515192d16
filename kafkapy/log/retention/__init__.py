"""Retention: select the segments to delete, and delete them. Implement `RetentionPolicy` for a policy of your own."""

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
