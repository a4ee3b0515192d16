"""Errors as the user of a DataFrame meets them. Spark shows the traceback of what a Python source raises; where our own
sentence says all, the way through our modules is left out of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import isgeneratorfunction
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

OURS = (
    "BadOption",
    "BadCheckpoint",
    "CheckpointError",
    "ClientError",
    "DamagedRows",
    "DataLoss",
    "KafkaError",
    "MissingRequirement",
    "OfflineError",
    "RefusedRow",
    "SinkFailed",
)


def plainly(method: Callable[P, R]) -> Callable[P, R]:
    """Of a method, or a generator, that Spark calls: an error of ours leaves it without the traceback behind it."""

    @wraps(method)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except Exception as error:
            if not _is_ours(error):
                raise
            raise error.with_traceback(None) from None

    @wraps(method)
    def iterated(*args: P.args, **kwargs: P.kwargs) -> Any:
        try:
            yield from method(*args, **kwargs)  # type: ignore[misc]
        except Exception as error:
            if not _is_ours(error):
                raise
            raise error.with_traceback(None) from None

    return iterated if isgeneratorfunction(method) else called


def _is_ours(error: Exception) -> bool:
    return any(base.__name__ in OURS and base.__module__.startswith("kafkapy.") for base in type(error).mro())
