"""Clients that administer topics, settings, groups and transactions."""
