"""`kafkapy spark`: what Spark does with topics, for people who want to write no program."""

import typer

from kafkapy.tools.spark_load import load

app = typer.Typer(no_args_is_help=True, help="Load topics into Parquet with Spark.")


@app.callback()
def _spark() -> None:
    """Load topics into Parquet with Spark."""


app.command("load")(load)
