"""Admin clients for topics, configurations, consumer groups and transactions."""
