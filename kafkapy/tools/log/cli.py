"""`kafkapy log`: the commands that look at segment files without a broker, each in a module of its own."""

import typer

from kafkapy.tools.log.adopt import adopt
from kafkapy.tools.log.diff import diff
from kafkapy.tools.log.dump import dump
from kafkapy.tools.log.export import export
from kafkapy.tools.log.find import find
from kafkapy.tools.log.import_07 import import_
from kafkapy.tools.log.stats import stats
from kafkapy.tools.log.tail import tail
from kafkapy.tools.log.verify import verify

app = typer.Typer(no_args_is_help=True, help="Look at segment files, of kafkapy or of Apache Kafka, without a broker.")


@app.callback()
def of_log() -> None:
    """Look at segment files, of kafkapy or of Apache Kafka, without a broker."""


app.command("dump")(dump)
app.command("adopt")(adopt)
app.command("export")(export)
app.command("stats")(stats)
app.command("verify")(verify)
app.command("import")(import_)
app.command("find")(find)
app.command("tail")(tail)
app.command("diff")(diff)
