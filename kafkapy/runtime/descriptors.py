"""The limit on the open files of this process. Every open segment and connection counts towards it."""

from __future__ import annotations

import resource


def raise_descriptor_limit() -> None:
    """Raise the soft limit on open files to the hard limit.

    The usual soft limit of 1,024 is too low for a broker with a few hundred partitions and connections.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError):
            pass  # the limit stays; running out of descriptors is reported where it happens


def half_of_the_descriptors() -> int:
    """Return half of the limit on open files, which is the default number of files that logs may keep open. The other
    half is for connections and other uses."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(soft // 2, 1) if soft != resource.RLIM_INFINITY else 1 << 30
