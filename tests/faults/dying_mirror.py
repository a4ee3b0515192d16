"""Runs `kafkapy mirror` and kills it: `dying_mirror.py MODULE:CLASS.METHOD:before|after:N mirror ...` sends itself
SIGKILL before or after the Nth call of the method."""

import importlib
import os
import signal
import sys
from typing import Any


def die_at(moment: str) -> None:
    module, place, when, count = moment.split(":")
    owner = getattr(importlib.import_module(module), place.partition(".")[0])
    name = place.partition(".")[2]
    real = getattr(owner, name)
    left = [int(count)]

    def dying(*words: Any, **more: Any) -> Any:
        left[0] -= 1
        if when == "before" and left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        answer = real(*words, **more)
        if when == "after" and left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    setattr(owner, name, dying)


if __name__ == "__main__":
    die_at(sys.argv[1])
    from kafkapy.tools.main import main

    sys.exit(main(sys.argv[2:]))
