"""`kafkapy log`: looking into segment files without a broker."""
