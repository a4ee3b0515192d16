"""A file system of a few megabytes that tests fill: a tmpfs, mounted by root or in a user's own mount namespace."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass
class SmallDisk:
    """The mounted file system. Programs started with `prefix` see it as `path`, tests as `outside`."""

    path: Path
    outside: Path
    prefix: list[str]

    def fill(self, leave: int = 0) -> None:
        """Fill the disk with a file, except for `leave` bytes."""
        with (self.outside / "ballast").open("ab", buffering=0) as file:
            for size in (1 << 16, 1 << 12):
                try:
                    while True:
                        file.write(b"\1" * size)
                except OSError:
                    pass
            file.truncate(max(file.tell() - leave, 0))

    def make_room(self) -> None:
        (self.outside / "ballast").unlink()


@contextmanager
def small_disk(where: Path, size: int) -> Iterator[SmallDisk]:
    """Mount a file system of `size` bytes at `where`; unmount it at the end.

    A separate process holds the mount namespace, so that no mount is left behind whatever happens, and a user who is
    not root can mount too.
    """
    where.mkdir(parents=True)
    mount = f"mount -t tmpfs -o size={size} tmpfs '{where}' && echo mounted && exec cat"
    holder = subprocess.Popen(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    first_line = holder.stdout.readline()
    if first_line != "mounted\n":
        holder.kill()
        raise RuntimeError(
            f"this machine does not allow mounting a tmpfs in a private namespace ({first_line.strip()}); the tests "
            "of a full disk need that: in a container, allow unshare (--security-opt seccomp=unconfined) or run it "
            "privileged"
        )
    enter = ["nsenter", "--preserve-credentials", "--user", "--mount", "--target", str(holder.pid), "--"]
    try:
        yield SmallDisk(where, Path(f"/proc/{holder.pid}/root{where}"), enter)
    finally:
        holder.stdin.close()
        holder.wait(30)
