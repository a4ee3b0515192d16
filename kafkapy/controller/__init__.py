"""The controller: partition leadership and topic changes, written to the metadata tree first, then sent to brokers."""
