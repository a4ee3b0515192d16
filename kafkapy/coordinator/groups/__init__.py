"""Consumer groups of the classic protocol: members, generations and assignments.

  group.py, member.py      the state of a group
  records.py               converts the part of the state that is stored in `__consumer_offsets`
  joining.py, syncing.py, leaving.py   handle JoinGroup, SyncGroup and Heartbeat, and LeaveGroup
  rebalances.py            how a rebalance proceeds, and session expiry
  responses.py             builds and sends the responses to members
  deleting.py              deletes groups, for DeleteGroups and when their last offset is deleted
  coordinator.py           the API for the request handlers, including DescribeGroups and ListGroups

Source: Kafka's GroupCoordinator, GroupMetadata and GroupMetadataManager.
"""
