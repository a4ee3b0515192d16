"""`kafkapy log verify`: a module for each kind of file that it checks."""
