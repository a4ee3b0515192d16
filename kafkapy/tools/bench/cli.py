"""The command `kafkapy bench`."""

import typer

from kafkapy.tools.bench.commit import commit
from kafkapy.tools.bench.consume import consume
from kafkapy.tools.bench.copies.cli import copies
from kafkapy.tools.bench.latency import latency
from kafkapy.tools.bench.produce import produce

app = typer.Typer(
    no_args_is_help=True,
    help="Measure a broker, kafkapy or any other that speaks Kafka's protocol, with clients that encode and decode as "
    "little as possible, so that the broker is the limit.",
)
for command in (produce, consume, latency, commit, copies):
    app.command(command.__name__)(command)
