"""The topics that the members of a group have subscribed to, out of what only they are to understand."""

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
    """None if one of the members has put something else there."""
    assert group.protocol is not None
    # Most members of a group say the same thing.
    said = {member.metadata(group.protocol) for member in group.members.values()}
    try:
        return {topic for metadata in said for topic in _topics(metadata)}
    except (ProtocolError, UnsupportedVersion) as error:
        log.warning("the subscriptions of group %r with protocol %r are none: %s", group.id, group.protocol, error)
        return None


def _topics(metadata: bytes) -> list[str]:
    """The topics stand first in all versions, so each is read as version 0, whatever comes behind them."""
    version = version_of(metadata, SUBSCRIPTION.name)
    if version < 0:
        raise UnsupportedVersion(f"{SUBSCRIPTION.name} has no version {version}")
    topics: list[str] = SUBSCRIPTION.decode(_VERSION_0 + metadata[len(_VERSION_0) :])[1].topics
    return topics
