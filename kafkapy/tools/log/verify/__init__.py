"""The command `kafkapy log verify`, with a module for each kind of file that it checks."""
