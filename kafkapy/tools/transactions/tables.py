"""Prints the tables of `kafkapy transactions`, and makes its JSON documents."""

import time
from collections.abc import Sequence
from typing import Any

from kafkapy.client.administration.txn_admin import HangingTransaction, ProducerState, TransactionDescription
from kafkapy.client.cluster import TopicPartition
from kafkapy.tools.common.output import print_table
from kafkapy.tools.common.partition_ranges import partitions_text
from kafkapy.tools.common.times import duration_text, time_text


def print_transactions(found: Sequence[TransactionDescription]) -> None:
    columns = ["transactional id", "state", "producer id>", "epoch>", "began", "time-out", "partitions", "coordinator>"]
    now = _now()
    print_table(
        columns,
        [
            (
                one.id,
                one.state,
                one.producer_id,
                one.producer_epoch,
                "-" if one.started_ms is None else f"{duration_text(now - one.started_ms)} ago",
                duration_text(one.timeout_ms),
                partitions_text(one.partitions),
                one.coordinator,
            )
            for one in found
        ],
    )


def print_producers(rows: Sequence[tuple[TopicPartition, ProducerState]]) -> None:
    columns = ["partition>", "producer id>", "epoch>", "coordinator epoch>", "last sequence>", "last written"]
    print_table(
        [*columns, "transaction from>"],
        [
            (
                where[1],
                state.producer_id,
                state.producer_epoch,
                state.coordinator_epoch,
                state.last_sequence,
                time_text(state.last_timestamp),
                "-" if state.txn_start_offset is None else state.txn_start_offset,
            )
            for where, state in rows
        ],
    )


def print_hanging(found: Sequence[HangingTransaction]) -> None:
    columns = ["topic", "partition>", "start offset>", "producer id>", "epoch>", "coordinator epoch>", "last written"]
    now = _now()
    print_table(
        [*columns, "ago"],
        [
            (
                *one.partition,
                one.producer.txn_start_offset,
                one.producer.producer_id,
                one.producer.producer_epoch,
                one.producer.coordinator_epoch,
                time_text(one.producer.last_timestamp),
                duration_text(now - one.producer.last_timestamp),
            )
            for one in found
        ],
    )


def transaction_document(one: TransactionDescription) -> dict[str, Any]:
    return {
        "transactionalId": one.id,
        "state": one.state,
        "producerId": one.producer_id,
        "producerEpoch": one.producer_epoch,
        "timeoutMs": one.timeout_ms,
        "startedMs": one.started_ms,
        "partitions": [{"topic": topic, "partition": index} for topic, index in one.partitions],
        "coordinator": one.coordinator,
    }


def producer_document(where: TopicPartition, state: ProducerState) -> dict[str, Any]:
    return {
        "topic": where[0],
        "partition": where[1],
        "producerId": state.producer_id,
        "producerEpoch": state.producer_epoch,
        "coordinatorEpoch": state.coordinator_epoch,
        "lastSequence": state.last_sequence,
        "lastTimestamp": state.last_timestamp,
        "transactionStartOffset": state.txn_start_offset,
    }


def _now() -> int:
    return round(time.time() * 1000)
