"""The error of an adoption."""

from __future__ import annotations


class AdoptionError(Exception):
    """The directories cannot be adopted and are unchanged; the message says why, and what to do."""
