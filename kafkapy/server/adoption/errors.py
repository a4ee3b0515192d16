"""Why directories are not adopted."""

from __future__ import annotations


class AdoptionError(Exception):
    """The directories stay as they are; the message says why and what to do."""
