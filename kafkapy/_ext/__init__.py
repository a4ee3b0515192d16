"""The compiled modules; their sources are in ext/ at the top of the repository."""

import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES


class NotBuilt(ImportError):
    """This package is a folder of sources, without modules compiled for the running Python."""


def _check_built(folder: str) -> None:
    """Raise NotBuilt if no file in `folder` is an extension module of the running Python.

    Python started in a checkout finds the checkout's kafkapy before an installed one, and would otherwise say
    "No module named 'kafkapy._ext.codec'".
    """
    endings = tuple(suffix.removeprefix(".") for suffix in EXTENSION_SUFFIXES)
    if not any(name.partition(".")[2] in endings for name in os.listdir(folder)):
        package = os.path.dirname(folder)
        raise NotBuilt(
            f"{package} is kafkapy's source code, not built for Python {sys.version_info[0]}.{sys.version_info[1]}: "
            "start Python in another directory to use an installed kafkapy, "
            f"or run pip install -e . in {os.path.dirname(package)} to build this one"
        )


_check_built(os.path.dirname(os.path.abspath(__file__)))
