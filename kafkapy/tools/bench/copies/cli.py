"""The command `kafkapy bench copies`."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from kafkapy.tools.bench.copies.loads import COLD, HOT, LONGEST, MODES, Figures, Load, StoredLog
from kafkapy.tools.bench.copies.verdict import Measured, better, choose, ratio
from kafkapy.tools.bench.figures import BUSY
from kafkapy.tools.bench.options import Force, Plot
from kafkapy.tools.bench.report import INTERRUPTED
from kafkapy.tools.common.errors import CallError, ToolError
from kafkapy.tools.common.interrupts import until_interrupted
from kafkapy.tools.common.options import Json
from kafkapy.tools.common.output import counted, print_json, print_table, progress
from kafkapy.tools.common.output_file import ResultFile
from kafkapy.tools.common.pictures import picture_file, save

MIB = 1 << 20
_DROPPED = 0.05  # with more of the log still in memory, it is not cold
_ROOM = 1.1


def copies(
    data: Annotated[
        Path, typer.Option("--data", metavar="DIR", help="A directory on the disk to measure; needs room for the log.")
    ] = Path("/var/tmp"),
    size: Annotated[int, typer.Option("--size", metavar="MIB", min=1, help="Size of the log.")] = 1024,
    consumers: Annotated[
        str, typer.Option("--consumers", "-c", metavar="LIST", help="How many consumers at a time.")
    ] = "1,8",
    fetch_size: Annotated[
        int, typer.Option("--fetch-size", metavar="BYTES", min=4096, help="Bytes of a response.")
    ] = MIB,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="How often to measure each load.")] = 3,
    as_json: Json = False,
    plot: Plot = None,
    force: Force = False,
) -> None:
    """Find out whether sendfile or copying is the better way for a kafkapy broker on this machine and disk.

    A private broker writes a log. Then brokers with sendfile and with copying serve the log in turn, to one consumer
    and to several, hot (from memory) and cold (dropped from the page cache before). The figures are MB/s and the CPU
    time of the broker. The last line says which way to use, as the broker's setting kafkapy.zero.copy.enable. The log
    is deleted at the end.

    Examples:

        kafkapy bench copies --data /var/lib/kafkapy --plot copies.png

        kafkapy bench copies --size 4096 --consumers 1,8,64 --rounds 5 --json
    """
    loads = [Load(state, count) for state in (HOT, COLD) for count in _counts(consumers)]
    picture = None if plot is None else picture_file(plot, force=force)
    length = size * MIB
    if fetch_size > LONGEST:
        raise CallError(f"--fetch-size {fetch_size:,} is above {LONGEST:,}: no response of a broker is longer")
    if fetch_size * max(load.consumers for load in loads) * 2 > length:
        raise CallError(f"--size {size} is too small for responses of {fetch_size:,} bytes to so many consumers")
    with _directory(data, length) as directory, until_interrupted() as interrupted:
        log = StoredLog(directory, length)
        measured: dict[Load, dict[str, Figures]] = {}
        notes: list[str] = []
        steps = rounds * len(MODES) * len(loads)
        with progress("Comparing", steps + 1, unit="steps", prints_lines=False) as show:
            log.write()
            if log.drop() > _DROPPED:
                loads = [load for load in loads if load.state != COLD]
                notes.append(f"Files in {data} cannot be dropped from memory, so nothing cold was measured.")
            done = 1
            for number in range(rounds):
                for mode in list(MODES)[:: -1 if number % 2 else 1]:  # a machine that gets slower affects both alike
                    if interrupted.is_set():
                        break
                    with log.served(mode) as broker:
                        for load in loads:
                            if interrupted.is_set():
                                break
                            show(done)
                            figures = measured.setdefault(load, {}).setdefault(mode, Figures())
                            log.measure(broker, load, fetch_size, figures)
                            done += 1
    whole = {load: ways for load, ways in measured.items() if len(ways) == len(MODES)}
    if whole:
        _report(whole, notes, log, fetch_size, data, interrupted.is_set(), as_json=as_json, picture=picture)
    if interrupted.is_set():
        raise typer.Exit(INTERRUPTED)


def _counts(text: str) -> list[int]:
    """Return the numbers in --consumers. Raises CallError for anything else."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() and 0 < int(word) <= 1000 for word in words):
        raise CallError(f"--consumers {text!r} is not numbers from 1 to 1000 with commas between, as in 1,8")
    return list(dict.fromkeys(map(int, words)))


@contextmanager
def _directory(data: Path, size: int) -> Iterator[Path]:
    """Yield a new directory in `data`, which is deleted at the end. Raises ToolError if there is no room."""
    try:
        free = shutil.disk_usage(data).free
        if free < size * _ROOM:
            raise ToolError(f"{data} has only {free // MIB:,} MiB of room: use a smaller --size or another --data")
        directory = tempfile.mkdtemp(prefix="kafkapy-bench-", dir=data)
    except OSError as error:
        raise ToolError(f"--data {data}: {error.strerror or error}") from error
    try:
        yield Path(directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _report(
    measured: Measured,
    notes: list[str],
    log: StoredLog,
    fetch_size: int,
    data: Path,
    interrupted: bool,
    *,
    as_json: bool,
    picture: ResultFile | None,
) -> None:
    use, sentence = choose(measured)
    title = f"sendfile and copying, a log of {log.size // MIB:,} MiB in {data}, responses of {fetch_size:,} bytes"
    bound = [str(load) for load, ways in measured.items() if any(max(one.client) >= BUSY for one in ways.values())]
    if bound:
        notes.append(f"The consumers of this command were the limit, not the broker, with: {'; '.join(bound)}.")
    if interrupted:
        notes.append("Interrupted: these are the figures so far.")
    if as_json:
        print_json(
            {
                "command": "copies",
                "data": str(data),
                "logBytes": log.size,
                "fetchSize": fetch_size,
                "loads": [_load_document(load, ways) for load, ways in measured.items()],
                "use": use,
                "sentence": sentence,
                "notes": notes,
                "interrupted": interrupted,
            }
        )
    else:
        rows = []
        for load, ways in measured.items():
            sendfile, copy = ways["sendfile"], ways["copy"]
            words = "no difference" if (which := better(ways)) == "either" else which
            cells = [f"{one.rate:,.0f}" for one in (sendfile, copy)]
            cells += [f"{one.cpu_per_gib:.2f}" for one in (sendfile, copy)]
            disk = f"{max(max(sendfile.from_disk), max(copy.from_disk)):.0%}"
            rows.append((load, *cells, f"{ratio(ways):.2f}", words, disk))
        print_table(
            (
                "load",
                "sendfile MB/s>",
                "copy MB/s>",
                "sendfile CPU s/GiB>",
                "copy CPU s/GiB>",
                "ratio>",
                "faster",
                "from disk>",
            ),
            rows,
            title=f"{title}, {counted(len(next(iter(measured.values()))['sendfile'].rates), 'round')}",
        )
        print()
        for note in (*notes, sentence):
            print(note)
    if picture is not None:
        from kafkapy.tools.bench.copies.plot import draw

        save(picture, partial(draw, measured, title, sentence))


def _load_document(load: Load, ways: Any) -> dict[str, Any]:
    return {
        "state": load.state,
        "consumers": load.consumers,
        "rateRatio": round(ratio(ways), 3),
        "faster": better(ways),
        **{
            mode: {
                "megabytesPerSecond": [round(rate, 1) for rate in ways[mode].rates],
                "cpuSecondsPerGiB": [round(cpu, 4) for cpu in ways[mode].cpu],
                "fromDisk": [round(share, 3) for share in ways[mode].from_disk],
                "clientCpuShare": [round(share, 3) for share in ways[mode].client],
            }
            for mode in MODES
        },
    }
