"""Removes topics from the metadata cache that were deleted while its session with ZooKeeper had expired.

The controller sends the deletion of a topic to registered brokers only, and after the next registration it sends the
topics that exist. Kafka's brokers keep and show a topic that was deleted in between until they are restarted.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkapy.server.services import Services

log = logging.getLogger("kafkapy.server.membership")


def forget_deleted(services: Services, present: Collection[str]) -> None:
    """Remove topics that are not among those present, and have no node in the metadata tree, from the metadata cache.

    The node decides: a new controller of Kafka does not send topics whose replicas are all offline, and a topic whose
    node cannot be decoded is not known to a new controller of kafkapy. Blocks. Raises TreeError.
    """
    for name in services.cache.names():
        if name not in present and services.is_topic_gone(name, services.cache.topic_id(name)):
            log.info("topic %s was deleted while this broker was not registered", name)
            services.cache.remove(name)
