"""AdoptionError, the exception of an adoption that is refused."""

from __future__ import annotations


class AdoptionError(Exception):
    """Raised if log directories cannot be adopted. They are unchanged; the message says why, and what to do."""
