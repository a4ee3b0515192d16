"""The complete broker: configuration, request dispatch, one handler module per API family, metrics."""
