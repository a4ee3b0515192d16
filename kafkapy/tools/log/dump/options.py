"""The options of `log dump`, and its output. The modules for all kinds of files use both."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kafkapy.tools.log.decoders.values import DEFAULT, Decoder, compact
from kafkapy.tools.log.dump.findings import Findings


@dataclass(frozen=True)
class DumpOptions:
    """The options of a dump, with the names that they have in Kafka's tool. `max_bytes` limits how many bytes of each
    .log file are read."""

    deep_iteration: bool = False
    print_data_log: bool = False
    verify_index_only: bool = False
    index_sanity_check: bool = False
    skip_record_metadata: bool = False
    max_bytes: int | None = None
    as_json: bool = False
    decoder: Decoder = DEFAULT

    @property
    def deep(self) -> bool:
        return self.deep_iteration or self.print_data_log


@dataclass
class Output:
    """The output of a dump. `write` is called with each line, `progress` with the number of bytes read so far of all
    files."""

    options: DumpOptions
    write: Callable[[str], object]
    progress: Callable[[int], object] = lambda _: None
    findings: Findings = field(default_factory=Findings)
    done_before: int = 0  # bytes of the files before the current one

    def text(self, line: str) -> None:
        """Print a line of text that has no JSON form. With --json, print nothing."""
        if not self.options.as_json:
            self.write(line)

    def json(self, shown: dict[str, Any]) -> None:
        """Print a JSON object that has no text form. Without --json, print nothing."""
        if self.options.as_json:
            self.write(compact(shown))

    def either(self, line: str, shown: dict[str, Any]) -> None:
        """Print a line of text, or with --json the object with the same content."""
        self.write(compact(shown) if self.options.as_json else line)

    def advance(self, done: int) -> None:
        """Report progress: `done` bytes of the current file have been read."""
        self.progress(self.done_before + done)
