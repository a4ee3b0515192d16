"""What a topic's settings ask of produced batches, ready for the validator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from kafkapy._ext.batch import HEADER
from kafkapy._ext.validation import built_batch
from kafkapy.errors import Errors, KafkaError
from kafkapy.log.config import LogConfig
from kafkapy.log.results import CLIENT
from kafkapy.record.compression import NONE, ZSTD, codec_of
from kafkapy.record.validation import MAX_DECOMPRESSED, ValidatedBatch, Validator

_CREATE_TIME, _APPEND_TIME = 0, 1
_FOREVER = (1 << 63) - 1

# What may be held of sets that were built anew, before they are appended.
MOST_HELD = 4 << 20


@lru_cache(maxsize=256)
def rules_of(config: LogConfig, max_decompressed: int = MAX_DECOMPRESSED) -> AppendRules:
    """The same for all logs that share their settings: there may be thousands."""
    return AppendRules(config, max_decompressed)


class AppendRules:
    """Made once for each change of the settings."""

    __slots__ = ("_any", "_any_own", "_own_limit", "_plain", "_plain_own", "_zstd", "older")

    def __init__(self, config: LogConfig, max_decompressed: int = MAX_DECOMPRESSED) -> None:
        settings: dict[str, Any] = {
            "max_decompressed": max_decompressed,
            "timestamp_type": _APPEND_TIME if config.message_timestamp_type == "LogAppendTime" else _CREATE_TIME,
            "before_max_ms": config.message_timestamp_before_max_ms,
            "after_max_ms": config.message_timestamp_after_max_ms,
            "compact": config.compact,
            "max_message_bytes": config.max_message_bytes,
        }
        self._zstd = config.stores_zstd
        self.older = config.record_magic != 2  # whether the topic is of message format 0 or 1
        if config.compression_type != "producer":
            settings["target_codec"] = codec_of(config.compression_type)
            settings["target_level"] = config.compression_level
        self._plain = Validator(**settings)
        self._plain_own = Validator(**settings, of_client=False)
        # Which formats a request may carry was looked at when it came.
        settings |= {"target_magic": config.record_magic, "any_magic": True}
        self._any = Validator(**settings)
        self._any_own = Validator(**settings, of_client=False)
        # Up to how many bytes a batch of this broker's own goes into the log as it was built just now, without a walk
        # over its records; 0 where the topic wants something of it that the builder does not know of.
        as_built = (
            config.record_magic == 2
            and "target_codec" not in settings
            and settings["timestamp_type"] == _CREATE_TIME
            and min(config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms) == _FOREVER
        )
        self._own_limit = config.max_message_bytes if as_built else 0

    def validate_all(
        self, sets: Sequence[memoryview], now_ms: int, zstd_allowed: bool, any_format: bool, origin: int = CLIENT
    ) -> Iterator[list[ValidatedBatch | KafkaError]]:
        """Several record sets in groups, each to be appended, and cleared, before the next is asked for.

        A set of some kilobytes can be built anew as a hundred megabytes: the groups bound what of that is there at a
        time. `any_format`: as `validate_any`.
        """
        validate = self.validate_any if any_format else self.validate
        group: list[ValidatedBatch | KafkaError] = []
        held = 0
        for records in sets:
            batch = validate(records, now_ms, zstd_allowed, origin)
            group.append(batch)
            if isinstance(batch, ValidatedBatch) and batch.rebuilt:
                held += batch.size if batch.remake is None else MOST_HELD  # its size is not known yet
                if held >= MOST_HELD:
                    yield group
                    group, held = [], 0
            del batch
        if group:
            yield group

    def validate(
        self, records: memoryview, now_ms: int, zstd_allowed: bool, origin: int = CLIENT
    ) -> ValidatedBatch | KafkaError:
        """The batch, checked and with timestamps as the topic wants them, or why it is refused. Format 2 alone."""
        own = self.own(records) if origin != CLIENT else None
        if own is not None:
            return own
        return self._checked(self._plain if origin == CLIENT else self._plain_own, records, now_ms, zstd_allowed)

    def own(self, records: memoryview) -> ValidatedBatch | None:
        """A batch that this broker has built itself, in a buffer of its own; None where it has to be looked into."""
        if not HEADER <= len(records) <= self._own_limit:
            return None
        batch = built_batch(records)
        return batch if batch.codec == NONE else None

    def validate_any(
        self, records: memoryview, now_ms: int, zstd_allowed: bool, origin: int = CLIENT
    ) -> ValidatedBatch | KafkaError:
        """The same for records and topics of any message format; may take long."""
        return self._checked(self._any if origin == CLIENT else self._any_own, records, now_ms, zstd_allowed)

    def _checked(
        self, validate: Validator, records: memoryview, now_ms: int, zstd_allowed: bool
    ) -> ValidatedBatch | KafkaError:
        try:
            batch = validate(records, now_ms, zstd_allowed)
        except KafkaError as error:
            return error.as_value()
        if not self._zstd and batch.codec == ZSTD:
            return KafkaError(
                Errors.UNSUPPORTED_COMPRESSION_TYPE,
                "zstd cannot be stored while inter.broker.protocol.version is below 2.1",
            )
        return batch
