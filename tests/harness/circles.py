"""Circles of references: what something leaves behind when it is done, and only a collection frees."""

import gc
from collections import Counter
from collections.abc import Callable


def circles_of(step: Callable[[], object], times: int, warm: int = 3) -> Counter[str]:
    """Return the types of the objects in circles after `step` was done so often, and how many there are of each.

    Objects that were there before are frozen: a collection that also walked through pytest's heap would take most of
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
        gc.unfreeze()
        gc.enable()


def _name(one: object) -> str:
    return getattr(one, "__qualname__", None) or type(one).__qualname__
