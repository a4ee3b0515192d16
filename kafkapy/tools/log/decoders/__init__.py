"""Decoders, with which the commands of `kafkapy log` show keys and values of records."""
