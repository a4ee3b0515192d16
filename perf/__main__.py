"""`python -m perf`: compares kafkapy with Apache Kafka and with bare loops; writes a table and a JSON file."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from perf import cpu, jars, network, tables
from perf.brokers import Fleet
from perf.machine import ROOT, describe
from perf.measurement import FULL, KAFKA, KAFKA_4, KAFKAPY, OTHER, QUICK, Bench, Measurement
from perf.measurements import ALL
from perf.profile import Profiler
from perf.report import head, show, write_json
from perf.runner import Collected, run
from perf.stats import compare
from perf.warm import Warmth

MINUTES = {FULL.name: 180.0, QUICK.name: 160 / 60}
HEADLINE_RUNS = 5
CONGESTION = (
    "run in a separate network namespace, loopback only, with this TCP congestion control, such as reno (needs root): "
    "bbr, the default of some hosts, also paces large responses on loopback"
)


def main(arguments: list[str] | None = None, show: Callable[..., None] = show) -> int:
    options = _options(arguments)
    chosen, wanted = _chosen(options)
    scale = QUICK if options.quick else FULL
    runs = options.runs or (1 if options.quick else HEADLINE_RUNS if options.headline else 2)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C: stop the brokers
    if options.profile:
        cpu.profile_with(Profiler(options.profile, waits=options.waits))
    options.data.mkdir(parents=True, exist_ok=True)
    if KAFKA in options.brokers:
        jars.fetch()
    if KAFKA_4 in options.brokers:
        jars.fetch(jars.KAFKA_4_VERSION)
    for each in chosen:
        each.fetch()
    if options.congestion:
        network.enter_own(options.congestion)
    machine = describe(options.data, options.other, kafka_4=KAFKA_4 in options.brokers)
    print(head(machine))
    collected = Collected()
    began = time.monotonic()
    interrupted = False
    with tempfile.TemporaryDirectory(prefix="kafkapy-perf-", dir=options.data) as directory:
        fleet, warmth = Fleet(Path(directory), options.other), Warmth(Path(directory), limit=scale.memory_limit)
        bench = Bench(scale, Path(directory), fleet, warmth, wanted)
        try:
            took = -time.monotonic()
            read = warmth.top_up()
            took += time.monotonic()
            print(f"memory           warmed by {read / 2**30:.1f} GiB of page cache in {took:.1f} s\n")
            seconds = 60 * (options.minutes or MINUTES[scale.name]) - took
            run(bench, chosen, options.brokers, runs, seconds, collected, whole=options.headline or not options.names)
        except KeyboardInterrupt:
            interrupted = True
        finally:
            bench.close()
            fleet.close()
            warmth.close()
    comparisons = compare([row for each in chosen for row in each.rows], collected.figures)
    notes = dict(bench.notes)
    if collected.left_out:
        notes["left out"] = f"left out, because time was up: {'; '.join(collected.left_out)}"
    stolen = collected.most_stolen()
    if stolen is not None:
        notes["stolen"] = stolen
    if interrupted:
        notes["interrupted"] = "interrupted: the table has only the figures measured until then"
    notes |= {f"failure {number}": f"failed: {text}" for number, text in enumerate(collected.failures)}
    show(machine, comparisons, notes, bench.curves)
    how = {
        "command": _command(options),
        "date": time.strftime("%Y-%m-%d"),
        "scale": scale.name,
        "runs": runs,
        "seconds": round(time.monotonic() - began, 1),
        "seconds_of": collected.seconds,
        "stolen_of": collected.stolen,
    }
    write_json(options.json, machine, comparisons, collected.figures, notes, how, bench.curves)
    print(f"\n{how['seconds']:.0f} s in all; every figure is in {options.json}")
    return 130 if interrupted else 1 if collected.failures else 0


def _chosen(options: argparse.Namespace) -> tuple[list[Measurement], set[str] | None]:
    """Return the measurements, and the keys of the rows that are wanted; None if all are."""
    if not options.headline:
        names = options.names or [each.name for each in ALL if each.quick or not options.quick]
        return [each for each in ALL if each.name in names], None
    wanted = {key for _, keys in tables.HEADLINE for key in keys}
    wanted |= {row.key for each in ALL if each.name in options.names for row in each.rows}
    return [each for each in ALL if any(row.key in wanted for row in each.rows)], wanted


def _command(options: argparse.Namespace) -> str:
    """Return the command line with the options that affect figures, without those that name files."""
    words = ["python -m perf", *options.names]
    words += [f"--{name}" for name in ("headline", "quick", "profile") if getattr(options, name)]
    for name in ("runs", "minutes", "congestion"):
        if (value := getattr(options, name)) is not None:
            words.append(f"--{name} {value:g}" if isinstance(value, float) else f"--{name} {value}")
    return " ".join(words)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    listed = "\n".join(f"  {each.name:<20} {each.about}" for each in ALL)
    parser = argparse.ArgumentParser(
        "python -m perf",
        description="Measures kafkapy and Apache Kafka in one run and prints medians, ratios and goals.",
        epilog=f"measurements (default: all; with --quick without the long ones):\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    default = ROOT / "perf" / "results" / time.strftime("%Y-%m-%d-%H%M%S.json")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="small sizes, one run: under 3 minutes, for a first look")
    parser.add_argument(
        "--headline",
        action="store_true",
        help="the rows of the README's table, and all of the measurements NAME; nothing else that takes long",
    )
    parser.add_argument(
        "--runs", type=int, help="runs of each measurement, if time permits (2, with --quick 1, with --headline 5)"
    )
    parser.add_argument(
        "--minutes", type=float, help=f"the time after which no further run is begun ({MINUTES[FULL.name]:.0f})"
    )
    parser.add_argument("--json", type=Path, default=default, metavar="FILE", help="the JSON file (%(default)s)")
    parser.add_argument("--congestion", metavar="NAME", help=CONGESTION)
    parser.add_argument(
        "--profile",
        type=Path,
        metavar="DIR",
        help="record each timed part with perf of Linux, and write there which threads and functions took the time "
        "(needs root; the figures of this run do not count)",
    )
    parser.add_argument(
        "--waits", action="store_true", help="with --profile: write how long each thread ran and waited for a core"
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=Path("/var/tmp"),
        metavar="DIR",
        help="a directory on disk for the brokers' data (%(default)s)",
    )
    parser.add_argument(
        "--brokers",
        type=lambda text: text.split(","),
        metavar="LIST",
        help=f"the brokers to measure, {KAFKA} (3.9.1), {KAFKA_4} (4.4.0, where it can be measured) and {KAFKAPY} "
        f"(default: all three, with --quick {KAFKA},{KAFKAPY}); {KAFKAPY},/path/to/checkout compares with the broker "
        "of another checkout, in which kafkapy is built",
    )
    options = parser.parse_args(arguments)
    options.brokers = options.brokers or ([KAFKA, KAFKAPY] if options.quick else [KAFKA, KAFKA_4, KAFKAPY])
    if options.waits and not options.profile:
        parser.error("--waits belongs to --profile DIR")
    if unknown := set(options.names) - {each.name for each in ALL}:
        parser.error(f"no measurement is called {', '.join(sorted(unknown))}: see --help")
    options.other = _other_checkout(parser, options)
    return options


def _other_checkout(parser: argparse.ArgumentParser, options: argparse.Namespace) -> Path | None:
    """Return the checkout that --brokers names, if any, and replace it by OTHER in `options.brokers`."""
    named = [name for name in options.brokers if name not in (KAFKA, KAFKA_4, KAFKAPY)]
    if not named:
        return None
    if len(named) > 1:
        parser.error(f"--brokers: {', '.join(named)}: only one other checkout can be measured")
    checkout = Path(named[0]).resolve()
    if not list(checkout.glob("kafkapy/_ext/*.so")):
        parser.error(
            f"--brokers: {named[0]} is none of {KAFKA}, {KAFKA_4} and {KAFKAPY}, and no checkout in which kafkapy is "
            "built (python setup.py build_ext --inplace)"
        )
    options.brokers = [OTHER if name == named[0] else name for name in options.brokers]
    return checkout


if __name__ == "__main__":
    sys.exit(main())
