"""Fetching records of partitions, without a group or for one."""
