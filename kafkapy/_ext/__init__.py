"""The compiled modules; their sources are in ext/ at the top of the repository."""
