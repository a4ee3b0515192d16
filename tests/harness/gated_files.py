"""A disk on which the recovery of chosen logs waits until a test lets it continue."""

import os
import threading

from kafkapy._ext.segment_scan import Scan
from kafkapy.log.storage.files import Files
from kafkapy.record.file_region import FileHandle

PATIENCE_S = 120


class GatedFiles(Files):
    """Files whose full scans wait until `open_gate` if the path contains `text`."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.arrived = threading.Event()  # a scan is waiting
        self.scanned: list[str] = []  # the directory of each full scan
        self._gate = threading.Event()

    def open_gate(self) -> None:
        self._gate.set()

    def scan(
        self, file: FileHandle, position: int, end: int, base_offset: int, interval: int, verify: bool = True
    ) -> Scan:
        if verify:
            if self.text in file.path:
                self.arrived.set()
                assert self._gate.wait(PATIENCE_S), "the gate was not opened"
            self.scanned.append(os.path.basename(os.path.dirname(file.path)))
        return super().scan(file, position, end, base_offset, interval, verify)
