"""The names of the internal topics `__consumer_offsets` and `__transaction_state`, and the topic configuration with
which the broker creates them.

Source: Kafka's GroupCoordinatorService and TransactionStateManager.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

GROUPS = "__consumer_offsets"
TRANSACTIONS = "__transaction_state"


def topic_config(topic: str, config: Mapping[str, Any]) -> dict[str, str]:
    """Return the topic configuration with which to create the internal topic `topic`. `config` has the broker's
    settings, from which some values are taken."""
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
