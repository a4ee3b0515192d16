"""What people type: the command line and the offline tools for segment files."""
