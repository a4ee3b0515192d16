"""A disk whose reads wait for as long as a test wants: a FUSE file system in its own mount namespace."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.harness import fuse_server

PATIENCE_S = 60


class SlowDisk:
    """The mounted disk: programs started with `prefix` use `path`; their files are stored in `source`."""

    def __init__(self, path: Path, source: Path) -> None:
        self.path = path
        self.source = source
        path.mkdir(parents=True)
        source.mkdir(parents=True)
        mounting = [sys.executable, "-S", fuse_server.__file__, str(path), str(source)]
        self._server = subprocess.Popen(
            ["unshare", "--user", "--map-root-user", "--mount", *mounting],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._news = threading.Condition()
        self._lines: list[str] = []
        threading.Thread(target=self._listen, daemon=True).start()
        self._wait_for(lambda: bool(self._lines))
        if self._lines != ["mounted"]:
            assert self._server.stderr is not None
            raise RuntimeError(
                "this machine does not allow mounting a FUSE file system in a private namespace "
                f"({self._server.stderr.read().strip()}); the tests of a slow disk need that: in a container, give it "
                "/dev/fuse and allow unshare (--device /dev/fuse --security-opt seccomp=unconfined)"
            )
        enter = ["nsenter", "--preserve-credentials", "--user", "--mount", "--target", str(self._server.pid), "--"]
        self.prefix = enter

    def hold(self, text: str) -> None:
        """Make every read of a file whose path contains `text` wait. Reads of cached pages do not reach the disk."""
        self._command(f"hold {text}")

    def release(self) -> None:
        self._command("release")

    def forget(self, text: str) -> None:
        """Drop the cached pages of such files from memory. None of their reads may be waiting."""
        self._command(f"forget {text}")

    @property
    def held(self) -> list[str]:
        """Return the names of the files whose reads had to wait so far, one for each read."""
        with self._news:
            return [line[5:] for line in self._lines if line.startswith("held ")]

    def wait_until_held(self, reads: int = 1) -> None:
        """Wait until `reads` reads in total had to wait."""
        self._wait_for(lambda: sum(line.startswith("held ") for line in self._lines) >= reads)

    def close(self) -> None:
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait(PATIENCE_S)

    def _command(self, command: str) -> None:
        assert self._server.stdin is not None
        done = self._lines.count("done")
        self._server.stdin.write(command + "\n")
        self._server.stdin.flush()
        self._wait_for(lambda: self._lines.count("done") > done)

    def _wait_for(self, condition) -> None:
        with self._news:
            assert self._news.wait_for(condition, PATIENCE_S), self._lines[-20:]

    def _listen(self) -> None:
        assert self._server.stdout is not None
        for line in self._server.stdout:
            with self._news:
                self._lines.append(line.rstrip("\n"))
                self._news.notify_all()
        with self._news:
            self._lines.append("ended")
            self._news.notify_all()


@contextmanager
def slow_disk(where: Path) -> Iterator[SlowDisk]:
    """Mount the disk at `where`/mnt over `where`/source. Programs that use it must have ended when the block ends."""
    disk = SlowDisk(where / "mnt", where / "source")
    try:
        yield disk
    finally:
        disk.close()
