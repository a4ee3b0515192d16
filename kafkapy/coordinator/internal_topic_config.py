"""The names of Kafka's internal topics and the topic settings with which the broker creates them.

Source: Kafka's GroupCoordinatorService and TransactionStateManager.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

GROUPS = "__consumer_offsets"
TRANSACTIONS = "__transaction_state"


def topic_config(topic: str, config: Mapping[str, Any]) -> dict[str, str]:
    """Return the topic overrides for creating an internal topic, derived from the broker's settings."""
    if topic == GROUPS:
        return {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config["offsets.topic.segment.bytes"]),
        }
    return {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": str(config["transaction.state.log.min.isr"]),
        "segment.bytes": str(config["transaction.state.log.segment.bytes"]),
        "unclean.leader.election.enable": "false",
    }
