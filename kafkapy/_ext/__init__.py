"""The compiled modules; their sources are in ext/ at the top of the repository."""

import os
import sys
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES
from types import ModuleType


class NotBuilt(ImportError):
    """The module is not compiled for the running Python: no module is, or this one was added after the last build."""


class _MissingModules:
    """A finder, last in sys.meta_path, that says why a module of this package cannot be imported."""

    def __init__(self, names: set[str], package: str) -> None:
        self._names = names
        self._package = package

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> None:
        if name in self._names:
            raise NotBuilt(
                f"{self._package} was built from older sources, without {name}: "
                f"run pip install -e . in {os.path.dirname(self._package)} again"
            )


def _check_built(folder: str) -> None:
    """Raise NotBuilt if no file in `folder` is an extension module of the running Python.

    Python started in a checkout finds the checkout's kafkapy before an installed one, and would otherwise say
    "No module named 'kafkapy._ext.codec'". If only some modules are missing, an import of one of them raises.
    """
    endings = tuple(suffix.removeprefix(".") for suffix in EXTENSION_SUFFIXES)
    files = [name.partition(".") for name in os.listdir(folder)]
    built = {name for name, _, ending in files if ending in endings}
    package = os.path.dirname(folder)
    if not built:
        raise NotBuilt(
            f"{package} is kafkapy's source code, not built for Python {sys.version_info[0]}.{sys.version_info[1]}: "
            "start Python in another directory to use an installed kafkapy, "
            f"or run pip install -e . in {os.path.dirname(package)} to build this one"
        )
    missing = {name for name, _, ending in files if ending == "pyi"} - built
    if missing:
        sys.meta_path.append(_MissingModules({f"{__name__}.{name}" for name in missing}, package))


_check_built(os.path.dirname(os.path.abspath(__file__)))
