"""A client for load: it sends requests that were encoded before, and decodes no response unless something is wrong.

`kafkapy bench` and the measurements in perf/ use it, so that the broker is the limit and not the client.
"""
