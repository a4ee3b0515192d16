"""Opening the logs of a directory at the start, and recovering them after an unclean stop."""
