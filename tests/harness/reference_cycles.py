"""Finds objects in reference cycles that an operation leaves, which only the garbage collector can free."""

import gc
from collections import Counter
from collections.abc import Callable


def objects_left_in_cycles(step: Callable[[], object], times: int, warm: int = 3) -> Counter[str]:
    """Run `step` `times` times. Return the types of the objects in remaining reference cycles, with their numbers.

    Earlier objects are frozen, and stay frozen: a collection that also walked through pytest's heap would take most of
    the test's time.
    """
    for _ in range(warm):
        step()
    gc.disable()
    gc.freeze()
    try:
        for _ in range(times):
            step()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        return Counter(_name(one) for one in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def _name(one: object) -> str:
    return getattr(one, "__qualname__", None) or type(one).__qualname__
