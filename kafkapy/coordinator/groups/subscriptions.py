"""Decodes the topics that members of a consumer group subscribe to from their protocol metadata."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kafkapy.errors import ProtocolError, UnsupportedVersion
from kafkapy.protocol.consumer_protocol import SUBSCRIPTION
from kafkapy.protocol.versioned import version_of

if TYPE_CHECKING:
    from kafkapy.coordinator.groups.group import Group

_VERSION_0 = b"\0\0"

log = logging.getLogger("kafkapy.coordinator.groups")


def topics_of(group: Group) -> set[str] | None:
    """Return the topics of all members' subscriptions, or None if a member's metadata cannot be decoded."""
    assert group.protocol is not None
    # A set, because most members have the same metadata.
    distinct = {member.metadata(group.protocol) for member in group.members.values()}
    try:
        return {topic for metadata in distinct for topic in _topics(metadata)}
    except (ProtocolError, UnsupportedVersion) as error:
        log.warning(
            "the subscriptions of group %r with protocol %r cannot be decoded: %s", group.id, group.protocol, error
        )
        return None


def _topics(metadata: bytes) -> list[str]:
    """Return the topics of a subscription. Every version begins with them, so all are decoded as version 0."""
    version = version_of(metadata, SUBSCRIPTION.name)
    if version < 0:
        raise UnsupportedVersion(f"{SUBSCRIPTION.name} has no version {version}")
    topics: list[str] = SUBSCRIPTION.decode(_VERSION_0 + metadata[len(_VERSION_0) :])[1].topics
    return topics
