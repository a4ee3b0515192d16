"""What `kafkapy log verify` checks, a module for each kind of file; what is wrong goes into a Report."""
