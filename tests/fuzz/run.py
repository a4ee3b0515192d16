"""Fuzz the parsers: python -m tests.fuzz.run --inputs 1000000 --seed 1 [--only NAME ...] [--first N]

Prints how many inputs each parser accepted and refused; stops at the first failure and prints how to repeat it.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time

from tests.fuzz.loop import Failure, all_targets, run_one


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz the parsers with damaged inputs.")
    parser.add_argument("--inputs", type=int, default=100_000, help="how many, over all targets")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first input, to repeat one")
    parser.add_argument("--only", nargs="*", help="names of targets")
    options = parser.parse_args()
    targets = [target for target in all_targets() if not options.only or target.name in options.only]
    if not targets:
        parser.error(f"no target is named so; there are {', '.join(target.name for target in all_targets())}")
    each = -(-options.inputs // len(targets))
    began, total = time.monotonic(), 0
    for target in targets:
        start, accepted = time.monotonic(), 0
        try:
            for number in range(options.first, options.first + each):
                accepted += run_one(target, options.seed, number)
        except Failure as failure:
            print(f"FAILED {failure}", file=sys.stderr)
            raise
        total += each
        spent = time.monotonic() - start
        print(f"{target.name:14} {each:9} inputs, {accepted:8} accepted, {spent:6.1f} s", flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{'all':14} {total:9} inputs, no failure, {time.monotonic() - began:6.1f} s, at most {peak} MiB resident")
    return 0


if __name__ == "__main__":
    sys.exit(main())
