"""The picture of scripts/flights: flights and mean delay by hour and carrier, mean delay by week and by weather."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

LOCAL = ZoneInfo("America/New_York")
DAYS = 365
FEW = 30  # with fewer flights than this, a cell shows no mean delay

WEATHER: Sequence[tuple[str, Callable[[dict[str, Any]], bool]]] = (
    ("calm and dry", lambda row: row["precip"] == 0 and row["wind_speed"] < 10 and row["visib"] >= 5),
    ("wind of 20 mph or more", lambda row: row["wind_speed"] >= 20),
    ("rain or snow", lambda row: row["precip"] > 0),
    ("visibility below 5 miles", lambda row: row["visib"] < 5),
    ("rain, 0.1 inch per hour or more", lambda row: row["precip"] >= 0.1),
)


def draw(hours: Sequence[dict[str, Any]], names: dict[str, str], path: Path) -> None:
    """Draw the picture into the file `path`; `names` has the name of each carrier.

    `hours`: rows with time_hour, carrier, flights, departed, dep_delay (the sum, in minutes) and the weather.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import numpy as np
    from matplotlib.colors import LogNorm, TwoSlopeNorm

    cells: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0, 0])
    for row in hours:
        cell = cells[row["carrier"], (row["time_hour"].astimezone(LOCAL)).hour]
        for place, name in enumerate(("flights", "departed", "dep_delay")):
            cell[place] += row[name]
    totals: dict[str, int] = defaultdict(int)
    for (carrier, _), cell in cells.items():
        totals[carrier] += cell[0]
    carriers = sorted(totals, key=lambda carrier: -totals[carrier])
    day = range(5, 24)
    count = np.full((len(carriers), len(day)), np.nan)
    delay = np.full_like(count, np.nan)
    for (carrier, hour), (flights, departed, minutes) in cells.items():
        if hour in day:
            count[carriers.index(carrier), hour - day[0]] = flights / DAYS
            if departed >= FEW:
                delay[carriers.index(carrier), hour - day[0]] = minutes / departed

    figure = plt.figure(figsize=(15, 9.2), layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=[3, 1])
    panels = above.subplots(1, 2, sharey=True)
    labels = [f"{names.get(carrier, carrier)}  {totals[carrier]:,}  {carrier}" for carrier in carriers]
    # The last item of each: smaller values get no number, because it would be "0".
    shown = (
        (count, "Flights per day (grey: none; no number: under 0.5)", "Blues", LogNorm(0.1, 30), 0.5),
        (
            delay,
            f"Mean departure delay, minutes (grey: under {FEW} flights in the year)",
            "RdBu_r",
            TwoSlopeNorm(0, -30, 42),
            -1e9,
        ),
    )
    for axes, (values, title, colours, norm, least) in zip(panels, shown, strict=True):
        image = axes.imshow(values, cmap=colours, norm=norm, aspect="auto")
        axes.set_title(title, loc="left", fontweight="bold")
        axes.set_xticks(range(len(day)), [f"{hour}" for hour in day])
        axes.set_xlabel("scheduled hour of departure, New York time")
        axes.set_yticks(range(len(carriers)), labels)
        axes.set_facecolor("#eeeeee")
        axes.set_xticks(np.arange(-0.5, len(day)), minor=True)
        axes.set_yticks(np.arange(-0.5, len(carriers)), minor=True)
        axes.grid(which="minor", color="white", linewidth=1)
        axes.tick_params(which="both", length=0)
        axes.spines[:].set_visible(False)
        for (y, x), value in np.ndenumerate(values):
            if not np.isnan(value) and value >= least:
                red, green, blue, _ = image.cmap(image.norm(value))
                dark = 0.3 * red + 0.6 * green + 0.1 * blue < 0.55
                text = f"{value:.0f}".replace("-0", "0").replace("-", "\u2212")
                axes.text(x, y, text, ha="center", va="center", fontsize=8, color="white" if dark else "black")
    weeks, weather = below.subplots(1, 2, width_ratios=[1.5, 1])
    _by_week(weeks, hours)
    _by_weather(weather, hours)
    figure.suptitle(
        f"{sum(totals.values()):,} flights from New York in 2013, by hour and carrier (with its flights in the year)",
        fontsize=15,
        fontweight="bold",
    )
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _by_week(axes: Any, hours: Sequence[dict[str, Any]]) -> None:
    """Draw the mean departure delay of each week as a line."""
    from matplotlib.dates import DateFormatter, MonthLocator

    weeks: dict[Any, list[int]] = defaultdict(lambda: [0, 0])
    for row in hours:
        at = row["time_hour"].astimezone(LOCAL).date()
        week = weeks[at - timedelta(days=at.timetuple().tm_yday % 7)]
        week[0] += row["departed"]
        week[1] += row["dep_delay"]
    days = sorted(day for day, (departed, _) in weeks.items() if departed > 1000)
    means = [weeks[day][1] / weeks[day][0] for day in days]
    axes.plot(days, means, color="#b2182b", linewidth=1.8)
    axes.fill_between(days, means, color="#b2182b", alpha=0.12)
    axes.set_title("Mean departure delay by week, minutes", loc="left", fontweight="bold")
    axes.set_ylim(0)
    axes.margins(x=0)
    axes.xaxis.set_major_locator(MonthLocator())
    axes.xaxis.set_major_formatter(DateFormatter("%b"))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#dddddd")


def _by_weather(axes: Any, hours: Sequence[dict[str, Any]]) -> None:
    """Draw the mean departure delay by weather, at the hour and airport of the flight, as bars."""
    known = [row for row in hours if None not in (row["precip"], row["wind_speed"], row["visib"])]
    bars = []
    for name, holds in WEATHER:
        rows = [row for row in known if holds(row)]
        departed = sum(row["departed"] for row in rows)
        bars.append((f"{name}  ({departed:,} flights)", sum(row["dep_delay"] for row in rows) / max(departed, 1)))
    bars.reverse()
    drawn = axes.barh([name for name, _ in bars], [mean for _, mean in bars], color="#4393c3", height=0.65)
    axes.bar_label(drawn, fmt="%.1f", padding=3)
    axes.set_title("Mean departure delay by weather, minutes", loc="left", fontweight="bold")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.margins(x=0.1)
