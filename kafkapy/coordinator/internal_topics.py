"""The settings with which Kafka makes its internal topics (GroupCoordinatorService, TransactionStateManager)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

GROUPS = "__consumer_offsets"
TRANSACTIONS = "__transaction_state"


def settings_of(topic: str, config: Mapping[str, Any]) -> dict[str, str]:
    """A topic's overrides, from the broker's settings."""
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
