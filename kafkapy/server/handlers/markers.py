"""WriteTxnMarkers (versions 0 to 1), sent by a transaction coordinator, or by a tool that ends a hanging transaction.

Source: KafkaApis.handleWriteTxnMarkersRequest.

Differences from Kafka:

- A request in which a marker names a partition more than once gets a response. Kafka also writes only one marker to
  the partition, but sends no response.
- A marker without partitions has an entry in the response. In Kafka's response it has none.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkapy.errors import Errors
from kafkapy.protocol.apis import WRITE_TXN_MARKERS
from kafkapy.record.control import Marker
from kafkapy.server.admission import is_denied
from kafkapy.server.api_table import serves
from kafkapy.server.call import Call, answered
from kafkapy.server.checks import CLUSTER_DENIED, Check, Right

if TYPE_CHECKING:
    from kafkapy.server.services import Services

# A request with more markers takes milliseconds, too long for a network thread; it runs on the disk pool.
MOST_INLINE = 200


@serves(
    WRITE_TXN_MARKERS,
    quota="exempt",
    checks=[
        Check(
            Right("CLUSTER_ACTION", "CLUSTER"),
            CLUSTER_DENIED + " on each partition",
            unless=Right("ALTER", "CLUSTER"),
        )
    ],
)
def write_txn_markers(broker: Services, call: Call, request: Any) -> Any:
    """Handle WriteTxnMarkers: append a transaction marker to each named partition. Return an error code for each
    partition."""
    if is_denied(broker, call, "ALTER", logged=False) and is_denied(broker, call, "CLUSTER_ACTION"):
        return _denied(request)
    count = sum(1 + sum(len(topic.partition_indexes) for topic in marker.topics) for marker in request.markers)
    pool = broker.disk_pool if count > MOST_INLINE else None
    return answered(call, lambda reply: _write_all(broker, request, reply), pool)


def _denied(request: Any) -> Any:
    code = Errors.CLUSTER_AUTHORIZATION_FAILED
    return _response(
        {
            marker.producer_id: {
                (topic.name, index): code for topic in marker.topics for index in topic.partition_indexes
            }
            for marker in request.markers
        }
    )


def _write_all(broker: Services, request: Any, reply: Callable[[Any], None]) -> None:
    # By producer id: a request may have several markers of a producer, and the response has one entry for the producer.
    codes: dict[int, dict[tuple[str, int], int]] = {marker.producer_id: {} for marker in request.markers}
    left = len(request.markers) + 1
    lock = threading.Lock()

    def written(producer_id: int, answers: dict[tuple[str, int], int]) -> None:
        with lock:
            codes[producer_id].update(answers)
        less()

    def less() -> None:
        nonlocal left
        with lock:
            left -= 1
            last = left == 0
        if last:
            reply(_response(codes))

    for marker in request.markers:
        # Each partition once: otherwise a partition that is named a thousand times would get a thousand markers.
        partitions = dict.fromkeys((topic.name, index) for topic in marker.topics for index in topic.partition_indexes)
        broker.markers.write(
            Marker(
                marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, commit=marker.transaction_result
            ),
            list(partitions),
            partial(written, marker.producer_id),
        )
    less()


def _response(codes: dict[int, dict[tuple[str, int], int]]) -> Any:
    make = WRITE_TXN_MARKERS.Response
    markers = []
    for producer_id, answers in codes.items():
        topics: dict[str, Any] = {}
        for (name, index), code in answers.items():
            topic = topics.setdefault(name, make.Markers.Topics(name=name, partitions=[]))
            topic.partitions.append(make.Markers.Topics.Partitions(partition_index=index, error_code=code))
        markers.append(make.Markers(producer_id=producer_id, topics=list(topics.values())))
    return make(markers=markers)
