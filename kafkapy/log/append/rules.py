"""Validate the record sets of an append against the topic's settings, before the log's lock is taken."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from kafkapy._ext.batch import HEADER
from kafkapy._ext.validation import built_batch
from kafkapy.errors import Errors, KafkaError
from kafkapy.log.config import LogConfig
from kafkapy.record.compression import ZSTD, codec_of
from kafkapy.record.validation import MAX_DECOMPRESSED, ValidatedBatch, Validator

_CREATE_TIME, _APPEND_TIME = 0, 1
_FOREVER = (1 << 63) - 1

# How many bytes of rebuilt record sets may be in memory before they are appended.
MOST_HELD = 4 << 20


class OwnBatch(bytearray):
    """A batch of format 2 that this broker has built: a coordinator's records, or a transaction marker.

    The batch is appended as it was built, unless the topic's settings change batches or limit their timestamps; then it
    is validated like a client's batch. Unlike a client's batch, an OwnBatch may be a control batch, and its producer's
    sequence is not checked (Kafka's AppendOrigin.COORDINATOR). The log writes the offset into the buffer.
    """


Records = memoryview | OwnBatch  # a record set to append; a memoryview comes from a client


@lru_cache(maxsize=256)
def rules_of(config: LogConfig, max_decompressed: int = MAX_DECOMPRESSED) -> AppendRules:
    """Return the AppendRules for these settings.

    Logs with the same settings object share one AppendRules object, as there may be thousands of logs.
    """
    return AppendRules(config, max_decompressed)


class AppendRules:
    """The rules by which record sets are validated for one combination of topic settings.

    `stamps`: the topic uses LogAppendTime. `older`: the topic uses message format 0 or 1.
    """

    __slots__ = ("_largest_as_built", "_validator", "_zstd", "older", "stamps")

    def __init__(self, config: LogConfig, max_decompressed: int = MAX_DECOMPRESSED) -> None:
        self.stamps = config.message_timestamp_type == "LogAppendTime"
        settings: dict[str, Any] = {
            "max_decompressed": max_decompressed,
            "timestamp_type": _APPEND_TIME if self.stamps else _CREATE_TIME,
            "before_max_ms": config.message_timestamp_before_max_ms,
            "after_max_ms": config.message_timestamp_after_max_ms,
            "compact": config.compact,
            "max_message_bytes": config.max_message_bytes,
        }
        self._zstd = config.stores_zstd
        self.older = config.record_magic != 2  # the topic uses message format 0 or 1
        if config.compression_type != "producer":
            settings["target_codec"] = codec_of(config.compression_type)
            settings["target_level"] = config.compression_level
        # The produce handler has checked which formats the request may carry.
        settings |= {"target_magic": config.record_magic, "any_magic": True}
        self._validator = Validator(**settings)
        # An OwnBatch of up to this size is appended as it was built. 0 if the topic's settings require batches to be
        # changed.
        as_built = (
            config.record_magic == 2
            and "target_codec" not in settings
            and not self.stamps
            and min(config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms) == _FOREVER
        )
        self._largest_as_built = config.max_message_bytes if as_built else 0

    def validate(self, sets: Sequence[Records], first: int, now_ms: int) -> list[ValidatedBatch | KafkaError]:
        """Return the validated batch of each set from `sets[first]` on, or the KafkaError that refuses the set.

        Timestamps are set as the topic's settings require. A set of a few kilobytes can be rebuilt as a hundred
        megabytes. So when the rebuilt batches take MOST_HELD bytes, the list ends early. The caller then appends and
        drops these batches before it calls again for the next sets.
        """
        batches: list[ValidatedBatch | KafkaError] = []
        held = 0
        for records in sets[first:] if first else sets:
            is_own = type(records) is OwnBatch
            try:
                if is_own and HEADER <= len(records) <= self._largest_as_built:
                    batch = built_batch(memoryview(records))
                else:
                    batch = self._validator.validate(records, now_ms, not is_own)
                if not self._zstd and batch.codec == ZSTD:
                    raise KafkaError(
                        Errors.UNSUPPORTED_COMPRESSION_TYPE,
                        "zstd cannot be stored while inter.broker.protocol.version is below 2.1",
                    )
            except KafkaError as error:
                batches.append(error.as_value())
                continue
            batches.append(batch)
            if batch.rebuilt and not is_own:  # an OwnBatch takes its memory already
                held += batch.size if batch.remake is None else MOST_HELD  # its size is not known yet
                if held >= MOST_HELD:
                    break
        return batches
