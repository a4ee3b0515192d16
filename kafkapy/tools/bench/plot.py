"""Draws the picture of `kafkapy bench ... --plot`: rate and latency over time, and latency by percentile."""

from __future__ import annotations

from typing import Any, BinaryIO

from kafkapy.tools.bench.figures import MB, Latency, Measure, Result
from kafkapy.tools.common.pictures import plotting, today

FIRST, SECOND = "tab:blue", "tab:orange"
LATENCIES = {"p50": "tab:green", "p99": "tab:orange", "longest": "tab:red"}
NINES = (0, 50, 75, 90, 95, 97.5, 99, 99.5, 99.75, 99.9, 99.95, 99.99, 99.995, 99.999)


def draw(result: Result, what: Measure, out: BinaryIO, kind: str) -> None:
    """Draw the result and write the picture to `out` in the format `kind`."""
    figure = plotting().Figure(figsize=(12, 8), layout="constrained")
    rate = f"{result.records_a_second:,.0f} {what.unit}s/s"
    figure.suptitle(f"{what.title}: {rate} over {result.seconds:.1f} s ({today()})")
    if sum(result.latency.counts):
        (rates, times), (percents, words) = figure.subplots(2, 2)
        words.set_axis_off()
        words.text(0, 1, _settings(result, what), va="top", family="monospace", transform=words.transAxes)
        _draw_times(times, result)
        _draw_percentiles(percents, result, what)
    else:
        rates = figure.subplots()
    _draw_rates(rates, result, what)
    figure.savefig(out, format=kind, dpi=110)


def _settings(result: Result, what: Measure) -> str:
    lines = [f"{name:<18} {value}" for name, value in what.settings.items() if value is not None]
    names = (f"busiest client {result.busiest:.0%} of a CPU", f"machine {result.machine:.0%} busy")
    return "\n".join([*lines, "", *names])


def _draw_rates(axes: Any, result: Result, what: Measure) -> None:
    ends = [sample.end for sample in result.samples]
    axes.set_title("rate")
    axes.plot(ends, [sample.records / sample.seconds for sample in result.samples], color=FIRST, marker=".")
    axes.set_ylabel(f"{what.unit}s/s")
    axes.set_xlabel("seconds")
    axes.set_ylim(bottom=0)
    axes.grid(visible=True, alpha=0.3)
    if result.bytes:
        size = result.bytes / result.records / MB
        axes.secondary_yaxis("right", functions=(lambda rate: rate * size, lambda rate: rate / size)).set_ylabel("MB/s")


def _draw_times(axes: Any, result: Result) -> None:
    axes.set_title("latency")
    ends = [sample.end for sample in result.samples]
    for name, colour in LATENCIES.items():
        label = "max" if name == "longest" else name
        axes.plot(
            ends, [getattr(sample, name) * 1e3 for sample in result.samples], color=colour, marker=".", label=label
        )
    _log_of_ms(axes)
    axes.set_xlabel("seconds")
    axes.grid(visible=True, alpha=0.3)
    axes.legend(frameon=False)


def _draw_percentiles(axes: Any, result: Result, what: Measure) -> None:
    axes.set_title("latency by percentile")
    _draw_line(axes, result.latency, what.first, FIRST)
    if result.acknowledged is not None:
        _draw_line(axes, result.acknowledged, what.second, SECOND)
        axes.legend(frameon=False)
    axes.set_xscale("log")
    _log_of_ms(axes)
    shown = [percent for percent in (50, 90, 99, 99.9, 99.99, 99.999) if _place(percent) <= axes.get_xlim()[1]]
    axes.set_xticks([_place(percent) for percent in shown], [f"{percent:g} %" for percent in shown])
    axes.xaxis.minorticks_off()
    axes.grid(visible=True, alpha=0.3)


def _log_of_ms(axes: Any) -> None:
    """Make the y-axis logarithmic, with plain numbers."""
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(lambda place, _: f"{place:g}")
    axes.set_ylabel("ms")


def _draw_line(axes: Any, latency: Latency, label: str, colour: str) -> None:
    """Draw the percentiles as far as there are enough durations for them."""
    total = sum(latency.counts)
    values = latency.at([percent for percent in NINES if total * (1 - percent / 100) >= 1])
    axes.plot(
        [_place(percent) for percent, _ in values],
        [value * 1e3 for _, value in values],
        color=colour,
        marker=".",
        label=label,
    )


def _place(percent: float) -> float:
    """Return the place of a percentile on the axis, on which each nine takes the same room."""
    return 1 / (1 - percent / 100)
