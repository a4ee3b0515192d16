"""Circles of references: what something leaves behind when it is done, and only a collection frees."""

import gc
from collections import Counter
from collections.abc import Callable


def circles_of(step: Callable[[], object], times: int, warm: int = 3) -> Counter[str]:
    """The types of the objects in circles after `step` was done so often, and how many there are of each."""
    for _ in range(warm):
        step()
    gc.collect()
    gc.disable()
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
