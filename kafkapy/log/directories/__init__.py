"""Log directories: their locks, identities and checkpoint files."""
