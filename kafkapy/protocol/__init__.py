"""What goes over the wire: one schema text an API, the compiler for it, message classes, headers.

Start at `apis` (the registry: `apis.METADATA.decode_request(...)`), then `schemas/` and `compiler`.
"""
