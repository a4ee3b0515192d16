"""Removes tracebacks from the errors that users of DataFrames see.

Spark shows the traceback of an exception in a Python source. The message of kafkapy's own errors is enough, so their
traceback is removed.
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
    """Decorate a method or generator that Spark calls, so that kafkapy's own errors are raised without a traceback."""

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
    """Return True if the error's class, or one of its base classes, is a class of kafkapy that OWN_ERRORS names."""
    return any(base.__name__ in OWN_ERRORS and base.__module__.startswith("kafkapy.") for base in type(error).mro())
