"""Load the logs of a log directory when the broker starts, and recover them after an unclean stop."""
