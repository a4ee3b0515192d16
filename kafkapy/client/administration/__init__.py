"""Admin clients for topics, configurations, partitions, consumer groups and transactions."""
