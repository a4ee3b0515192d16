"""The decorator of the methods that Spark calls.

It removes tracebacks from the errors that users of DataFrames see. Spark shows the traceback of an exception in a
Python source, but the message of kafkapy's own errors is enough. And it makes the next call in the process cheaper.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import isgeneratorfunction
from typing import Any, ParamSpec, TypeVar

from kafkapy.spark.reused_workers import spare_next_call

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


def entry_point(method: Callable[P, R]) -> Callable[P, R]:
    """Decorate a method or generator that Spark calls.

    kafkapy's own errors are raised without a traceback, and the next call in this process is made cheaper.
    """

    @wraps(method)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except Exception as error:
            if not _is_own(error):
                raise
            raise error.with_traceback(None) from None
        finally:
            spare_next_call()

    @wraps(method)
    def iterated(*args: P.args, **kwargs: P.kwargs) -> Any:
        try:
            yield from method(*args, **kwargs)  # type: ignore[misc]
        except Exception as error:
            if not _is_own(error):
                raise
            raise error.with_traceback(None) from None
        finally:
            spare_next_call()

    return iterated if isgeneratorfunction(method) else called


def _is_own(error: Exception) -> bool:
    """Return True if the error's class, or one of its base classes, is a class of kafkapy that OWN_ERRORS names."""
    return any(base.__name__ in OWN_ERRORS and base.__module__.startswith("kafkapy.") for base in type(error).mro())
