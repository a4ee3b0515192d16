"""Consumer groups of the classic protocol: members, generations and assignments.

  group.py, member.py      the state of a group
  records.py               the part of the state that is stored in `__consumer_offsets`
  joining.py, syncing.py, leaving.py   the steps for JoinGroup, SyncGroup and Heartbeat, LeaveGroup
  rebalances.py            how a rebalance proceeds, and session expiry
  deleting.py, views.py    DeleteGroups; DescribeGroups and ListGroups
  coordinator.py           what the request handlers call

Source: Kafka's GroupCoordinator, GroupMetadata and GroupMetadataManager.
"""
