"""Kafka's wire protocol: a schema text for each API, the compiler of the schemas, message classes and headers.

Read `apis` first (the registry of APIs: `apis.METADATA.decode_request(...)`), then `schemas/` and `compiler`.
"""
