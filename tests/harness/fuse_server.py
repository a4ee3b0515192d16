"""A directory served again through /dev/fuse, whose reads wait on command.

Run as `fuse_server.py MOUNTPOINT SOURCE` by a user who may mount there. Commands on standard input: `hold TEXT` makes
every read of a file whose name contains TEXT wait, `release` lets them continue, `forget TEXT` drops the kernel's
cached pages of such files. Standard output has `mounted` first, `held NAME` for each read that has to wait, and `done`
after each command. The protocol is linux/fuse.h, version 7.31.
"""

import ctypes
import errno
import os
import select
import struct
import sys
import threading

HEADER = struct.Struct("<IIQQIIIHH")
REPLY = struct.Struct("<IiQ")
ATTR = struct.Struct("<6Q10I")
READ = struct.Struct("<QQIIQII")
SETATTR = struct.Struct("<IIQQQQQQIIIIIIII")
ROOT = 1
VALID_S = 3600  # no other process changes the files
KEEP_CACHE = 2
# Pages are written and kept as on a disk: without WRITEBACK the last page of a file would be read again.
ASYNC_READ, BIG_WRITES, WRITEBACK, MAX_PAGES = 1, 1 << 5, 1 << 16, 1 << 22
SET_SIZE, SET_MTIME, SET_MTIME_NOW = 1 << 3, 1 << 5, 1 << 8
INVALIDATE_INODE = 2
LARGEST = 1 << 17


class Server:
    def __init__(self, mountpoint: str, source: str) -> None:
        self.fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        options = f"fd={self.fd},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mount(b"slow", mountpoint.encode(), b"fuse", 0, options):
            raise OSError(ctypes.get_errno(), "mounting a FUSE file system failed")
        self.paths = {ROOT: source}
        self.nodes = {source: ROOT}
        self.hold = ""
        self.held: list[bytes] = []

    # --- commands

    def command(self, line: str) -> None:
        word, _, text = line.partition(" ")
        if word == "hold":
            self.hold = text
        elif word == "release":
            self.hold = ""
            held, self.held = self.held, []
            for request in held:
                self.answer(request)
        elif word == "forget":
            nodes = [node for node, path in self.paths.items() if text in path]
            # This runs on another thread, because the kernel first writes dirty pages to this process.
            threading.Thread(target=self.forget, args=(nodes,)).start()
            return
        print("done", flush=True)

    def forget(self, nodes: list[int]) -> None:
        for node in nodes:
            notice = struct.pack("<Qqq", node, 0, 0)
            try:
                os.write(self.fd, REPLY.pack(REPLY.size + len(notice), INVALIDATE_INODE, 0) + notice)
            except FileNotFoundError:  # the kernel has no cached page of it
                continue
        print("done", flush=True)

    # --- requests

    def answer(self, request: bytes) -> None:
        _, opcode, unique, node, *_ = HEADER.unpack_from(request)
        name, quiet = OPERATIONS.get(opcode, ("unknown", False))
        body = request[HEADER.size :]
        if name == "read" and self.hold and self.hold in self.paths[node]:
            self.held.append(request)
            print("held", os.path.basename(self.paths[node]), flush=True)
            return
        error, data = 0, b""
        try:
            data = getattr(self, name)(node, body)
        except OSError as failure:
            error = -(failure.errno or errno.EIO)
        if not quiet:
            os.write(self.fd, REPLY.pack(REPLY.size + len(data), error, unique) + data)

    def unknown(self, node: int, body: bytes) -> bytes:
        raise OSError(errno.ENOSYS, "not needed here")

    def init(self, node: int, body: bytes) -> bytes:
        _, _, readahead, flags = struct.unpack_from("<4I", body)
        flags &= ASYNC_READ | BIG_WRITES | WRITEBACK | MAX_PAGES
        return struct.pack("<4IHHIIHHI28x", 7, 31, readahead, flags, 64, 64, LARGEST, 1, LARGEST // 4096, 0, 0)

    def nothing(self, node: int, body: bytes) -> bytes:
        return b""

    def child(self, node: int, name: bytes) -> str:
        return os.path.join(self.paths[node], name.rstrip(b"\0").decode())

    def attributes(self, path: str) -> bytes:
        stat = os.lstat(path)
        seconds = [int(stat.st_atime), int(stat.st_mtime), int(stat.st_ctime)]
        parts = [each % 1_000_000_000 for each in (stat.st_atime_ns, stat.st_mtime_ns, stat.st_ctime_ns)]
        rest = [stat.st_mode, stat.st_nlink, 0, 0, 0, 4096, 0]
        return ATTR.pack(stat.st_ino, stat.st_size, stat.st_blocks, *seconds, *parts, *rest)

    def entry(self, path: str) -> bytes:
        attributes = self.attributes(path)
        node = self.nodes.setdefault(path, max(self.paths) + 1)
        self.paths[node] = path
        return struct.pack("<4QII", node, 0, VALID_S, VALID_S, 0, 0) + attributes

    def lookup(self, node: int, body: bytes) -> bytes:
        return self.entry(self.child(node, body))

    def getattr(self, node: int, body: bytes = b"") -> bytes:
        return struct.pack("<QII", VALID_S, 0, 0) + self.attributes(self.paths[node])

    def setattr(self, node: int, body: bytes) -> bytes:
        valid, _, _, size, _, _, mtime, *_ = SETATTR.unpack_from(body)
        path = self.paths[node]
        if valid & SET_SIZE:
            os.truncate(path, size)
        if valid & (SET_MTIME | SET_MTIME_NOW):
            os.utime(path, None if valid & SET_MTIME_NOW else (mtime, mtime))
        return self.getattr(node)

    def mkdir(self, node: int, body: bytes) -> bytes:
        path = self.child(node, body[8:])
        os.mkdir(path)
        return self.entry(path)

    def unlink(self, node: int, body: bytes) -> bytes:
        path = self.child(node, body)
        os.unlink(path)
        self.nodes.pop(path, None)
        return b""

    def rmdir(self, node: int, body: bytes) -> bytes:
        path = self.child(node, body)
        os.rmdir(path)
        self.nodes.pop(path, None)
        return b""

    def rename(self, node: int, body: bytes, head: int = 8) -> bytes:
        (to,) = struct.unpack_from("<Q", body)
        old, new = body[head:].rstrip(b"\0").split(b"\0")
        source, target = self.child(node, old), self.child(to, new)
        os.rename(source, target)
        self.nodes.pop(target, None)
        for path in [one for one in self.nodes if one == source or one.startswith(source + "/")]:
            moved = self.nodes.pop(path)
            self.nodes[target + path[len(source) :]] = moved
            self.paths[moved] = target + path[len(source) :]
        return b""

    def rename2(self, node: int, body: bytes) -> bytes:
        return self.rename(node, body, 16)

    def open(self, node: int, body: bytes) -> bytes:
        (flags,) = struct.unpack_from("<I", body)
        fd = os.open(self.paths[node], os.O_RDWR | flags & os.O_TRUNC | os.O_CLOEXEC)
        return struct.pack("<QII", fd, KEEP_CACHE, 0)

    def create(self, node: int, body: bytes) -> bytes:
        flags, mode = struct.unpack_from("<II", body)
        path = self.child(node, body[16:])
        fd = os.open(path, os.O_RDWR | flags & (os.O_TRUNC | os.O_EXCL) | os.O_CREAT | os.O_CLOEXEC, mode)
        return self.entry(path) + struct.pack("<QII", fd, KEEP_CACHE, 0)

    def read(self, node: int, body: bytes) -> bytes:
        fd, offset, size, *_ = READ.unpack_from(body)
        return os.pread(fd, size, offset)

    def write(self, node: int, body: bytes) -> bytes:
        fd, offset, size, *_ = READ.unpack_from(body)
        return struct.pack("<II", os.pwrite(fd, body[READ.size : READ.size + size], offset), 0)

    def release(self, node: int, body: bytes) -> bytes:
        os.close(struct.unpack_from("<Q", body)[0])
        return b""

    def fsync(self, node: int, body: bytes) -> bytes:
        os.fsync(struct.unpack_from("<Q", body)[0])
        return b""

    def statfs(self, node: int, body: bytes) -> bytes:
        free = 1 << 28
        return struct.pack("<5Q4I24x", free, free, free, free, free, 4096, 255, 4096, 0)

    def opendir(self, node: int, body: bytes) -> bytes:
        return bytes(16)

    def readdir(self, node: int, body: bytes) -> bytes:
        _, offset, size, *_ = READ.unpack_from(body)
        found = b""
        for at, name in list(enumerate([".", "..", *sorted(os.listdir(self.paths[node]))], 1))[offset:]:
            encoded = name.encode()
            one = struct.pack("<QQII", 1, at, len(encoded), 0) + encoded
            one += bytes(-len(one) % 8)
            if len(found) + len(one) > size:
                break
            found += one
        return found

    def serve(self) -> None:
        print("mounted", flush=True)
        waits = select.poll()
        waits.register(self.fd, select.POLLIN)
        waits.register(0, select.POLLIN)
        partial = b""
        while True:
            for fd, _ in waits.poll():
                if fd == self.fd:
                    self.answer(os.read(self.fd, LARGEST + 4096))
                    continue
                more = os.read(0, 4096)
                if not more:  # the tests have ended
                    return
                *lines, partial = (partial + more).split(b"\n")
                for line in lines:
                    self.command(line.decode())


# opcode: the method, and True if the kernel waits for no answer
OPERATIONS = {
    1: ("lookup", False),
    2: ("nothing", True),  # FORGET
    3: ("getattr", False),
    4: ("setattr", False),
    9: ("mkdir", False),
    10: ("unlink", False),
    11: ("rmdir", False),
    12: ("rename", False),
    14: ("open", False),
    15: ("read", False),
    16: ("write", False),
    17: ("statfs", False),
    18: ("release", False),
    20: ("fsync", False),
    25: ("nothing", False),  # FLUSH
    26: ("init", False),
    27: ("opendir", False),
    28: ("readdir", False),
    29: ("nothing", False),  # RELEASEDIR
    30: ("nothing", False),  # FSYNCDIR
    34: ("nothing", False),  # ACCESS
    35: ("create", False),
    36: ("nothing", True),  # INTERRUPT: a waiting read continues to wait, as on a disk
    42: ("nothing", True),  # BATCH_FORGET
    45: ("rename2", False),
}


if __name__ == "__main__":
    Server(sys.argv[1], sys.argv[2]).serve()
