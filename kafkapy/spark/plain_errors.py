"""Errors without tracebacks for users of DataFrames.

Spark shows the traceback of an exception in a Python source. kafkapy's own errors have a message that is enough, so
their traceback is removed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import isgeneratorfunction
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

OWN_ERRORS = (
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


def without_traceback(method: Callable[P, R]) -> Callable[P, R]:
    """Decorate a method or generator that Spark calls: kafkapy's own errors leave it without a traceback."""

    @wraps(method)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except Exception as error:
            if not _is_own(error):
                raise
            raise error.with_traceback(None) from None

    @wraps(method)
    def iterated(*args: P.args, **kwargs: P.kwargs) -> Any:
        try:
            yield from method(*args, **kwargs)  # type: ignore[misc]
        except Exception as error:
            if not _is_own(error):
                raise
            raise error.with_traceback(None) from None

    return iterated if isgeneratorfunction(method) else called


def _is_own(error: Exception) -> bool:
    """Return True for kafkapy's own errors."""
    return any(base.__name__ in OWN_ERRORS and base.__module__.startswith("kafkapy.") for base in type(error).mro())
