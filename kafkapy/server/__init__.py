"""The broker put together: configuration, dispatch, one handler module an API family, metrics."""
