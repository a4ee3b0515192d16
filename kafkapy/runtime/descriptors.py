"""Open files: every segment in use and every connection holds one."""

from __future__ import annotations

import resource


def raise_descriptor_limit() -> None:
    """Raises the soft limit on open files to the hard one, which is all that a process may do for itself.

    The usual soft limit of 1,024 is far below what a broker with a few hundred partitions and connections needs.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError):
            pass  # then the limit stays what it is; running out of descriptors is told where it happens


def half_of_the_descriptors() -> int:
    """What logs may keep open where nobody says: the other half is for connections, and for what is under way."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(soft // 2, 1) if soft != resource.RLIM_INFINITY else 1 << 30
