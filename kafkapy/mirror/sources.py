"""The member of a source's group that speaks the protocol of the source's settings."""

from __future__ import annotations

from kafkapy.client.original.filters import TopicFilter
from kafkapy.extras import how_to_install
from kafkapy.mirror.member import SeekingMember
from kafkapy.mirror.properties import BadProperty
from kafkapy.mirror.source_settings import GroupSource, SourceSettings


def member_of(settings: SourceSettings, topics: TopicFilter, *, seeks: bool = False) -> SeekingMember:
    """Return a member of the source's group. With `seeks`, partitions are read only after `seek`."""
    if isinstance(settings, GroupSource):
        from kafkapy.mirror.group_member import GroupMember

        return GroupMember(settings, topics)
    try:
        from kafkapy.mirror.zookeeper_member import ZooKeeperMember
    except ModuleNotFoundError as error:
        if error.name != "kazoo":
            raise
        text = f"{settings.file}: ZooKeeper needs the library kazoo: {how_to_install('zookeeper')}"
        raise BadProperty(text) from None
    return ZooKeeperMember(settings, topics, seeks=seeks)
