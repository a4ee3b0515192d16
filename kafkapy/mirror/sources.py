"""Creates the mirror's member of a source's group, in Kafka or in ZooKeeper as the source's settings say."""

from __future__ import annotations

from kafkapy.client.original.filters import TopicFilter
from kafkapy.extras import how_to_install
from kafkapy.mirror.member import SeekingMember
from kafkapy.mirror.properties import BadProperty
from kafkapy.mirror.source_settings import GroupSource, SourceSettings


def member_of(settings: SourceSettings, topics: TopicFilter, *, seeks: bool = False) -> SeekingMember:
    """Return a new member of the source's group that reads the topics which the filter selects.

    With `seeks`, a member of a ZooKeeper group reads a partition only after `seek`. Raises BadProperty if the group is
    in ZooKeeper and kazoo is not installed.
    """
    if isinstance(settings, GroupSource):
        from kafkapy.mirror.group_member import GroupMember

        return GroupMember(settings, topics)
    try:
        from kafkapy.client.original.consuming.connector import ConsumerConnector
        from kafkapy.mirror.kafka_07_member import Kafka07Member
        from kafkapy.mirror.zookeeper_member import ZooKeeperMember
    except ModuleNotFoundError as error:
        if error.name != "kazoo":
            raise
        text = f"{settings.file}: ZooKeeper needs the library kazoo: {how_to_install('zookeeper')}"
        raise BadProperty(text) from None
    connector = ConsumerConnector(settings.properties)
    if connector.is_of_07:
        return Kafka07Member(settings, topics, connector)
    return ZooKeeperMember(settings, topics, seeks=seeks, connector=connector)
