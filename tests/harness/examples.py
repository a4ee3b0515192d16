"""How many random examples a property is tested with: fewer in the quick run."""

share = 1.0  # of the examples of a full run; tests/conftest.py sets it before the test modules are imported


def examples(count: int) -> int:
    """Return `count`, the number of examples of a full run, or the number for the quick run."""
    return max(5, int(count * share))
