"""Consumer groups of the classic protocol: who is a member, which generation it is, who gets which assignment.

`member` and `group` are the state, `records` what of it is kept; `joining`, `syncing`, `leaving` and `sessions` are
what happens to it, `rebalances` what follows; `shard_groups` holds the groups of one shard, `coordinator` is what the
handlers call, `admin` answers those who only look, or delete. Source: Kafka's GroupCoordinator, GroupMetadata and
GroupMetadataManager.
"""
