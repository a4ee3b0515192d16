"""What a dump is asked for, and where its lines go: shared by the dumps of all kinds of files."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kafkapy.tools.log.decoders import DEFAULT, Decoder, compact
from kafkapy.tools.log.findings import Findings


@dataclass(frozen=True)
class DumpOptions:
    """The switches of Kafka's tool that are known here; `max_bytes` limits how much of each .log file is read."""

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
    """`write` takes lines of standard output, `progress` the number of bytes read so far of all files."""

    options: DumpOptions
    write: Callable[[str], object]
    progress: Callable[[int], object] = lambda _: None
    findings: Findings = field(default_factory=Findings)
    done_before: int = 0  # bytes of the files before this one

    def text(self, line: str) -> None:
        """A line that JSON has no place for."""
        if not self.options.as_json:
            self.write(line)

    def json(self, shown: dict[str, Any]) -> None:
        """An object that text has no line for."""
        if self.options.as_json:
            self.write(compact(shown))

    def either(self, line: str, shown: dict[str, Any]) -> None:
        """The same thing in both forms."""
        self.write(compact(shown) if self.options.as_json else line)

    def advance(self, done: int) -> None:
        """`done`: bytes of this file."""
        self.progress(self.done_before + done)
