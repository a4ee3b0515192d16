"""The command `kafkapy bench`: measures a broker with a client that is not the limit."""
