"""The wire protocol: a schema text for each API, their compiler, message classes and headers.

Start at `apis` (the registry: `apis.METADATA.decode_request(...)`), then `schemas/` and `compiler`.
"""
