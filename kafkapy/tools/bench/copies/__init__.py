"""`kafkapy bench copies`: compares sendfile with reading and sending."""
