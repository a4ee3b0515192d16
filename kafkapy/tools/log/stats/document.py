"""Makes the JSON document of `kafkapy log stats` for one partition, or for several together."""

from collections.abc import Iterable
from typing import Any

from kafkapy.tools.log.decoders.values import readable
from kafkapy.tools.log.stats.totals import Key, Producer, Stats

Json = dict[str, Any]


def document(stats: Stats, top: int) -> Json:
    """Return the statistics as a JSON document. Sizes are in bytes, timestamps in ms. `top` is how many keys and
    producers are listed."""
    counts = stats.counts
    single = stats.partitions == 1
    return {
        "name": stats.name,
        "partitions": stats.partitions,
        "segments": stats.segments,
        "bytes": stats.file_bytes,
        "batches": counts["batches"],
        "batchBytes": counts["bytes"],
        "emptyBatches": counts["empty_batches"],
        "controlBatches": counts["control_batches"],
        "records": counts["records"],
        "recordBytes": counts["record_bytes"],
        "keyBytes": counts["key_bytes"],
        "valueBytes": counts["value_bytes"],
        "largestBatch": counts["largest_batch"],
        "largestRecord": counts["largest_record"],
        "firstOffset": _known(counts["first_offset"]) if single else None,
        "lastOffset": _known(counts["last_offset"]) if single else None,
        "gaps": counts["gaps"],
        "missingOffsets": counts["missing"],
        "largestGaps": [
            {"partition": name, "after": after, "missing": missing} for name, after, missing in sorted(stats.gaps)
        ],
        "batchesOutOfOrder": counts["backward"],
        "firstLeaderEpoch": _known(counts["first_epoch"]) if single else None,
        "lastLeaderEpoch": _known(counts["last_epoch"]) if single else None,
        "firstTimestamp": stats.first_time,
        "lastTimestamp": stats.last_time,
        "recordsWithoutTimestamp": counts["without_timestamp"],
        "timestampsOutOfOrder": counts["out_of_order"],
        "appendTimeBatches": counts["append_time_batches"],
        "formats": stats.formats,
        "codecs": {name: {**one, "ratio": _ratio(one)} for name, one in stats.codecs.items()},
        "batchSizes": _steps(stats.batch_bytes),
        "recordsInBatches": _steps(stats.batch_records),
        "nullKeys": counts["null_keys"],
        "tombstones": counts["tombstones"],
        "recordsWithHeaders": counts["with_headers"],
        "headers": counts["headers"],
        "transactions": {
            "committed": counts["committed"],
            "aborted": counts["aborted"],
            "open": sum(one.open_first >= 0 for one in stats.producers.values()),
            "records": counts["transactional_records"],
            "abortedRecords": counts["aborted_records"],
            "abortedBytes": counts["aborted_bytes"],
            "openRecords": counts["open_records"],
        },
        "producers": len(stats.producers),
        "producersExact": stats.producers_left_out == 0,
        "largestProducers": [_producer(one) for one in largest(stats.producers.values(), top)],
        "keys": stats.distinct_keys,
        "keysExact": stats.exact_keys,
        "largestKeys": [_key(one) for one in largest(stats.keys.values(), top)],
        "compaction": compaction(stats),
        "damage": stats.damage,
    }


def _known(number: int) -> int | None:
    return number if number >= 0 else None


def _ratio(codec: dict[str, int]) -> float | None:
    return round(codec["unpacked"] / codec["packed"], 3) if codec["packed"] else None


def _steps(places: list[int]) -> list[Json]:
    return [
        {"from": 1 << place - 1 if place else 0, "below": 1 << place, "batches": count}
        for place, count in enumerate(places)
        if count
    ]


def largest(them: Iterable[Any], top: int) -> list[Any]:
    """Return the `top` keys or producers with the most bytes, largest first."""
    return sorted(them, key=lambda one: -one.bytes)[:top]


def _key(key: Key) -> Json:
    shown = {"key": readable(key.name), "bytes": key.bytes, "error": key.error, "records": key.records}
    return shown if key.length == len(key.name) else {**shown, "keyLength": key.length}


def _producer(producer: Producer) -> Json:
    return {
        "id": producer.id,
        "epoch": producer.epoch,
        "batches": producer.batches,
        "records": producer.records,
        "bytes": producer.bytes,
        "lastSequence": _known(producer.last_sequence),
        "openFrom": _known(producer.open_first),
    }


def compaction(stats: Stats) -> Json:
    """Return how many records and bytes compacting everything now would remove: superseded records, records without a
    key, aborted records."""
    records, size = stats.counts["records"], stats.counts["record_bytes"]
    saved = size - stats.kept_bytes
    return {
        "exact": stats.exact_keys,
        "recordsGone": records - stats.distinct_keys,
        "bytesGone": saved,
        "share": round(saved / size, 4) if size else 0.0,
        "tombstonesLeft": stats.tombstones_kept,
        "tombstoneBytesLeft": stats.tombstone_bytes_kept,
    }
