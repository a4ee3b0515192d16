"""Searches in segment and index files, and the scan of a segment for recovery.

A segment may contain any mixture of message formats. Each message of format 0 or 1 counts as a batch here. So does a
compressed wrapper, with the offset of its last message: nothing is decompressed.

A search that must not wait (`nowait`) reads only what is in memory, and raises BlockingIOError if the disk is needed.
It keeps the GIL, since it takes microseconds. All other functions release the GIL.

Positions are bytes in the file. `end` is where the segment's valid bytes end. Nothing after it is read, so a search may
run while another thread appends.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.errno cimport EAGAIN, EINTR, EIO, ENOSYS, EOPNOTSUPP, errno
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, qsort, realloc
from libc.string cimport memcpy, memmove, memset
from kafkapy._ext.crc32 cimport crc_of as crc32_of
from kafkapy._ext.crc32c cimport crc_of as crc32c_of
from kafkapy._ext.cursor cimport load16, load32, load64
from kafkapy._ext.residency cimport readable

import os

cdef extern from "<sys/uio.h>" nogil:
    cdef struct iovec:
        void *iov_base
        size_t iov_len
    Py_ssize_t preadv2(int fd, const iovec *iov, int count, int64_t position, int flags)

cdef extern from *:
    """
    #include <sys/uio.h>
    #ifndef RWF_NOWAIT
    #define RWF_NOWAIT 0x00000008
    #endif
    """
    int RWF_NOWAIT

cdef enum:
    LOG_OVERHEAD = 12           # base offset and length, which the length does not count
    UP_TO_MAGIC = 17            # Kafka examines a batch only if this many bytes are there
    SMALLEST_MESSAGE = 14       # length of the smallest message of format 0
    SMALLEST_MESSAGE_V1 = 22
    V2_HEADER = 61
    CRC_COVERS_FROM = 21        # format 2: a CRC-32C of attributes to end
    OLD_CRC_COVERS_FROM = 16    # formats 0 and 1: a CRC-32 of magic to end
    LOOK = 8192                 # window of a search: about two index intervals
    CHECK = 262144              # window of a scan with CRCs: stays in the second-level cache
    RECENT_SLOTS = 1024
    RETAINED = 5                # batches that Kafka remembers of each producer
    TRANSACTIONAL = 0x10
    CONTROL = 0x20
    INDEX_PAGE = 512            # index entries that a search reads at once
    GUESSES = 2                 # of the page that has an entry, before the range is halved
    RELEASE_FROM = 65536        # bytes from which a scan in memory releases the GIL


class CorruptSegment(ValueError):
    """No valid batch begins where one should."""


# --- reading

cdef Py_ssize_t read_at(int fd, void *into, Py_ssize_t size, int64_t position, int flags) noexcept nogil:
    """Read until `size` bytes are there or the file ends; return the number of bytes, or -errno."""
    cdef iovec part
    cdef Py_ssize_t done = 0, n
    while done < size:
        part.iov_base = <uint8_t *>into + done
        part.iov_len = size - done
        n = preadv2(fd, &part, 1, position + done, flags)
        if n < 0:
            if errno == EINTR:
                continue
            if flags and (errno == EOPNOTSUPP or errno == ENOSYS):
                if not readable(fd, position + done, size - done):
                    return -EAGAIN
                flags = 0       # this file system does not support RWF_NOWAIT, but the pages are in memory
                continue
            return -errno
        if n == 0:
            break
        done += n
    return done


cdef const uint8_t *have(Walk *walk, int64_t position, Py_ssize_t wanted) noexcept nogil:
    """Return the `wanted` bytes at `position`, which must be before walk.end; NULL and walk.error if reading fails."""
    cdef Py_ssize_t kept = 0, got
    cdef int64_t offset = position - walk.window_at
    if 0 <= offset and offset + wanted <= walk.window_size:
        return walk.window + offset
    if 0 <= offset < walk.window_size:      # keep the bytes that are already there
        kept = walk.window_size - offset
        memmove(walk.window, walk.window + offset, kept)
    walk.window_at = position
    walk.window_size = kept
    got = walk.room - kept
    if got > walk.end - position - kept:
        got = walk.end - position - kept
    got = read_some(walk, kept, got, wanted)
    if got < 0:
        walk.error = <int>-got
        return NULL
    walk.window_size = kept + got
    if walk.window_size < wanted:
        walk.error = 0                      # the file is shorter than its log says
        return NULL
    return walk.window


cdef Py_ssize_t read_some(Walk *walk, Py_ssize_t kept, Py_ssize_t size, Py_ssize_t wanted) noexcept nogil:
    """Read up to `size` bytes after the `kept` bytes of the window; stop once it has `wanted` bytes."""
    cdef iovec part
    cdef Py_ssize_t done = 0, n
    cdef int flags = walk.flags
    while done < size and kept + done < wanted:
        part.iov_base = walk.window + kept + done
        part.iov_len = size - done
        n = preadv2(walk.fd, &part, 1, walk.window_at + kept + done, flags)
        if n < 0:
            if errno == EINTR:
                continue
            if flags and (errno == EOPNOTSUPP or errno == ENOSYS):
                if not readable(walk.fd, walk.window_at + kept + done, wanted - kept - done):
                    return -EAGAIN
                # This file system does not support RWF_NOWAIT. The wanted pages are in memory, later ones may not be.
                size = wanted - kept
                flags = 0
                continue
            return -errno
        if n == 0:
            break
        done += n
    return done


# --- the walk

cdef int64_t smallest(int magic) noexcept nogil:
    """Return the size of the smallest batch or message of a format."""
    if magic >= 2:
        return V2_HEADER
    return LOG_OVERHEAD + (SMALLEST_MESSAGE_V1 if magic == 1 else SMALLEST_MESSAGE)


cdef Step look(Walk *walk) noexcept nogil:
    """Read the header of the batch at walk.position."""
    cdef int64_t left = walk.end - walk.position
    cdef int64_t wanted = V2_HEADER if left > V2_HEADER else left
    cdef const uint8_t *at
    if left < UP_TO_MAGIC:
        return STEP_END
    at = have(walk, walk.position, wanted)
    if at == NULL:
        return STEP_ERROR
    walk.header = at
    walk.base_offset = <int64_t>load64(at)
    walk.size = <int64_t><int32_t>load32(at + 8)
    if walk.size < SMALLEST_MESSAGE:
        return STEP_CORRUPT
    walk.size += LOG_OVERHEAD
    walk.magic = <int><signed char>at[16]
    if walk.size < smallest(walk.magic):
        return STEP_CORRUPT
    if walk.size > left:
        return STEP_END
    if walk.magic >= 2:
        walk.last_offset = walk.base_offset + <int32_t>load32(at + 23)
        walk.max_timestamp = <int64_t>load64(at + 35)
    else:
        walk.last_offset = walk.base_offset
        walk.max_timestamp = <int64_t>load64(at + 18) if walk.magic == 1 else -1
    return STEP_BATCH


cdef void begin(Walk *walk, int fd, int64_t position, int64_t end, bint nowait, uint8_t *window,
                Py_ssize_t room) noexcept nogil:
    memset(walk, 0, sizeof(Walk))
    walk.fd = fd
    walk.flags = RWF_NOWAIT if nowait else 0
    walk.position = position
    walk.end = end
    walk.window = window
    walk.room = room


cdef object failure(Walk *walk, Step step):
    if step == STEP_CORRUPT:
        return CorruptSegment(f"there is no batch at byte {walk.position}: its length is not valid for a batch")
    if step == STEP_END:
        return CorruptSegment(f"there is no batch at byte {walk.position}: it would extend beyond byte {walk.end}")
    if walk.error == 0:
        return CorruptSegment(f"the file ends before byte {walk.end} (reading at byte {walk.position})")
    if walk.error == EAGAIN:
        return BlockingIOError(EAGAIN, "not in memory")
    return OSError(walk.error, f"{os.strerror(walk.error)} (reading at byte {walk.position})")


# --- searches

cdef Step find_offset(Walk *walk, int64_t offset) noexcept nogil:
    cdef Step step = look(walk)
    while step == STEP_BATCH and walk.last_offset < offset:
        walk.position += walk.size
        step = look(walk)
    return step


def locate(int fd, int64_t position, int64_t end, int64_t offset, bint nowait=False):
    """Return (position, size, base offset) of the first batch from `position` on that ends at `offset` or later.

    None if there is no such batch before `end`, which must be the end of a batch. Raises CorruptSegment,
    BlockingIOError (nowait), OSError.
    """
    cdef uint8_t window[LOOK]
    cdef Walk walk
    cdef Step step
    begin(&walk, fd, position, end, nowait, window, LOOK)
    if nowait:
        step = find_offset(&walk, offset)
    else:
        with nogil:
            step = find_offset(&walk, offset)
    if step == STEP_BATCH:
        return walk.position, walk.size, walk.base_offset
    if step == STEP_END and walk.position == end:
        return None
    raise failure(&walk, step)


def locate_timestamp(int fd, int64_t position, int64_t end, int64_t timestamp, int64_t offset):
    """Return (position, size) of the first batch from `position` on that ends at `offset` or later and whose max
    timestamp is at least `timestamp`; None if there is none. Raises CorruptSegment, OSError.
    """
    cdef uint8_t window[LOOK]
    cdef Walk walk
    cdef Step step
    begin(&walk, fd, position, end, False, window, LOOK)
    with nogil:
        step = look(&walk)
        while step == STEP_BATCH and (walk.max_timestamp < timestamp or walk.last_offset < offset):
            walk.position += walk.size
            step = look(&walk)
    if step == STEP_BATCH:
        return walk.position, walk.size
    if step == STEP_END and walk.position == end:
        return None
    raise failure(&walk, step)


def floor_entry(int fd, Py_ssize_t count, int width, int64_t target, bint nowait=False):
    """Return (slot, key, value) of the last entry of a sorted index file with a key up to `target`, or None.

    width 8: offset index (relative offset, position); width 12: time index (timestamp, relative offset).
    Raises BlockingIOError (nowait), OSError.
    """
    cdef uint8_t page[(INDEX_PAGE + 1) * 12]
    cdef Py_ssize_t low = 0, high = count, middle, got, first = 0, number = 0, guesses = GUESSES
    cdef int flags = RWF_NOWAIT if nowait else 0
    cdef int64_t key, low_key = 0, high_key
    if width != 8 and width != 12:
        raise ValueError(f"the entries of an index have 8 or 12 bytes, not {width}")
    # Invariant: entries before `low` have keys up to the target, entries from `high` on have greater keys.
    if width == 8 and high > INDEX_PAGE:
        # The relative offsets of most segments are spread evenly, so a guess from their range mostly finds the page
        # that halving a large index reaches after ten reads.
        got = index_read(fd, page, 8, (count - 1) * 8, flags)
        if got < 8:
            raise index_failure(got)
        high_key = entry_key(page, 8)
        if high_key <= target:
            low = count - 1
        while guesses and high - low > INDEX_PAGE and low_key <= target < high_key:
            guesses -= 1
            first = <Py_ssize_t>((high - low) * (<double>(target - low_key) / <double>(high_key - low_key)))
            first = min(max(low, low + first - INDEX_PAGE // 2), high - INDEX_PAGE)
            got = index_read(fd, page, INDEX_PAGE * 8, first * 8, flags)
            if got < INDEX_PAGE * 8:
                raise index_failure(got)
            if entry_key(page, 8) > target:
                high = first
                high_key = entry_key(page, 8)
            elif entry_key(page + (INDEX_PAGE - 1) * 8, 8) <= target:
                low = first + INDEX_PAGE
                low_key = entry_key(page + (INDEX_PAGE - 1) * 8, 8)
            else:
                number = INDEX_PAGE
                break
    while not number and high - low > INDEX_PAGE:
        middle = (low + high) >> 1
        got = index_read(fd, page, width, middle * width, flags)
        if got < width:
            raise index_failure(got)
        if entry_key(page, width) <= target:
            low = middle + 1
        else:
            high = middle
    if not number:
        # Read one more entry in front: the binary search may end just after it.
        first = low - 1 if low else 0
        number = high - first
        got = index_read(fd, page, number * width, first * width, flags)
        if got < number * width:
            raise index_failure(got)
    low = 0
    high = number
    while low < high:
        middle = (low + high) >> 1
        if entry_key(page + middle * width, width) <= target:
            low = middle + 1
        else:
            high = middle
    if low == 0:
        return None
    cdef const uint8_t *found = page + (low - 1) * width
    key = entry_key(found, width)
    return first + low - 1, key, <int64_t><int32_t>load32(found + width - 4)


def ceiling_position(int fd, Py_ssize_t count, int64_t position, bint nowait=False):
    """Return (relative offset, position) of the first entry of an offset index with at least this position, or None.

    Raises BlockingIOError (nowait), OSError.
    """
    cdef uint8_t page[INDEX_PAGE * 8]
    cdef Py_ssize_t low = 0, high = count, middle, first, got
    cdef int flags = RWF_NOWAIT if nowait else 0
    # Invariant: entries before `low` have smaller positions than `position`, entries from `high` on do not.
    while high - low >= INDEX_PAGE:
        middle = (low + high) >> 1
        got = index_read(fd, page, 8, middle * 8, flags)
        if got < 8:
            raise index_failure(got)
        if <int64_t>load32(page + 4) < position:
            low = middle + 1
        else:
            high = middle
    first = low
    if first == count:
        return None
    got = index_read(fd, page, min(high + 1, count) * 8 - first * 8, first * 8, flags)
    if got < (min(high + 1, count) - first) * 8:
        raise index_failure(got)
    while low < high:
        middle = (low + high) >> 1
        if <int64_t>load32(page + (middle - first) * 8 + 4) < position:
            low = middle + 1
        else:
            high = middle
    if low == count:
        return None
    return (<int64_t><int32_t>load32(page + (low - first) * 8), <int64_t>load32(page + (low - first) * 8 + 4))


cdef Py_ssize_t index_read(int fd, uint8_t *into, Py_ssize_t size, int64_t position, int flags):
    cdef Py_ssize_t got
    if flags:
        return read_at(fd, into, size, position, flags)
    with nogil:
        got = read_at(fd, into, size, position, 0)
    return got


cdef int64_t entry_key(const uint8_t *entry, int width) noexcept nogil:
    return <int64_t>load64(entry) if width == 12 else <int64_t><int32_t>load32(entry)


cdef object index_failure(Py_ssize_t got):
    if got >= 0:
        return OSError(EIO, "the index file is shorter than the number of its entries requires")
    if got == -EAGAIN:
        return BlockingIOError(EAGAIN, "not in memory")
    return OSError(<int>-got, os.strerror(<int>-got))


# --- the scan

cdef uint8_t *grow(Heap *heap, size_t size) noexcept nogil:
    """Return the address of `size` more bytes, counted as used; NULL if there is no memory."""
    cdef size_t room
    cdef uint8_t *data
    if heap.size + size > heap.room:
        room = heap.room * 2 if heap.room else 4096
        data = <uint8_t *>realloc(heap.data, room)
        if data == NULL:
            return NULL
        heap.data = data
        heap.room = room
    heap.size += size
    return heap.data + heap.size - size


cdef object taken(Heap *heap):
    cdef bytes made = PyBytes_FromStringAndSize(NULL, heap.size)
    cdef char *into = PyBytes_AS_STRING(made)
    with nogil:                     # megabytes are possible, and no other thread has `made` yet
        memcpy(into, heap.data, heap.size)
    return made


cdef enum Stop:
    STOP_END
    STOP_INCOMPLETE
    STOP_LENGTH
    STOP_MAGIC
    STOP_CRC
    STOP_OFFSET
    STOP_RANGE
    STOP_ERROR
    STOP_MEMORY


@cython.final
cdef class Scan:
    """The result of a scan; see `scan`."""

    cdef readonly int64_t valid_end             # end of the last valid batch
    cdef readonly int64_t next_offset           # last offset of the last valid batch + 1; -1 if there is none
    cdef readonly int64_t batches
    cdef readonly int64_t max_timestamp         # -1 if there is none
    cdef readonly int64_t max_timestamp_offset  # last offset of the first batch with max_timestamp
    cdef readonly bytes offset_entries          # native uint64 each: relative offset << 32 | position
    cdef readonly bytes time_stamps             # native int64 each
    cdef readonly bytes time_offsets            # native int32 each: relative offset
    cdef readonly bytes epochs                  # native pairs of int64: leader epoch, first offset of the epoch
    cdef readonly bytes producers               # struct "=qqqqqiiihh" each, see ProducerBatch
    cdef readonly object stopped_by             # None, or a sentence: why no valid batch begins at valid_end
    cdef readonly bint incomplete               # the bytes after valid_end are the beginning of a batch
    cdef readonly bint too_far                  # the batch at valid_end is too far from the base offset of the segment
    cdef readonly int64_t first_timestamp       # largest timestamp of the first batch; -1 if there is none
    cdef readonly int64_t since_entry           # bytes from the last index entry to valid_end


cdef Stop check_crc(Walk *walk) noexcept nogil:
    """Check the CRC of the batch at walk.position, moving the window over it."""
    cdef bint old = walk.magic < 2
    cdef int64_t at = walk.position + (OLD_CRC_COVERS_FROM if old else CRC_COVERS_FROM)
    cdef int64_t stop = walk.position + walk.size
    cdef uint32_t stored = load32(walk.header + (12 if old else 17))
    cdef uint32_t crc = 0
    cdef Py_ssize_t part
    cdef const uint8_t *data
    while at < stop:
        data = have(walk, at, 1)
        if data == NULL:
            return STOP_ERROR
        part = walk.window_size - (data - walk.window)
        if part > stop - at:
            part = stop - at
        crc = crc32_of(crc, data, part) if old else crc32c_of(crc, data, part)
        at += part
    return STOP_END if crc == stored else STOP_CRC


cdef bint collect(Walk *walk, Heap *producers, Recent *recent, int16_t attributes, int64_t producer_id,
                  int16_t epoch, int32_t base_sequence, int32_t delta) noexcept nogil:
    """Record a producer's batch. Of a producer's plain batches only the last five stay: Kafka remembers no more."""
    cdef Recent *slot = &recent[<uint64_t>producer_id * <uint64_t>0x9E3779B97F4A7C15 >> 54]
    cdef ProducerBatch *batch
    cdef int32_t place
    if attributes & (TRANSACTIONAL | CONTROL):
        slot.count = 0
    elif slot.count == 0 or slot.producer_id != producer_id or slot.producer_epoch != epoch:
        slot.producer_id = producer_id
        slot.producer_epoch = epoch
        slot.count = 0
        slot.oldest = 0
    if slot.count == RETAINED and not attributes & (TRANSACTIONAL | CONTROL):
        place = slot.at[slot.oldest]
        slot.oldest = (slot.oldest + 1) % RETAINED
    else:
        place = <int32_t>(producers.size // sizeof(ProducerBatch))
        if grow(producers, sizeof(ProducerBatch)) == NULL:
            return False
        if not attributes & (TRANSACTIONAL | CONTROL):
            slot.at[slot.count] = place
            slot.count += 1
    batch = <ProducerBatch *>producers.data + place
    batch.base_offset = walk.base_offset
    batch.last_offset = walk.last_offset
    batch.producer_id = producer_id
    batch.max_timestamp = walk.max_timestamp
    batch.position = walk.position
    batch.base_sequence = base_sequence
    batch.last_sequence = -1
    if base_sequence >= 0:      # wraps from 2^31 - 1 to 0
        batch.last_sequence = <int32_t>((<int64_t>base_sequence + delta) & 0x7FFFFFFF)
    batch.size = <int32_t>walk.size
    batch.producer_epoch = epoch
    batch.attributes = attributes
    return True


cdef int by_base_offset(const void *one, const void *other) noexcept nogil:
    cdef int64_t left = (<const ProducerBatch *>one).base_offset
    cdef int64_t right = (<const ProducerBatch *>other).base_offset
    return (left > right) - (left < right)


cdef Stop run(Walk *walk, Scan found, int64_t base_offset, int64_t interval, int64_t last_entry,
              int64_t last_stamp, bint verify, Heap *heaps, Recent *recent) noexcept nogil:
    cdef Heap *entries = &heaps[0]
    cdef Heap *stamps = &heaps[1]
    cdef Heap *stamp_offsets = &heaps[2]
    cdef Heap *epochs = &heaps[3]
    cdef Heap *producers = &heaps[4]
    cdef int64_t latest_epoch = -1, producer_id, relative
    cdef int32_t epoch, base_sequence = -1, delta = 0
    cdef int16_t attributes = 0, producer_epoch = -1
    cdef uint8_t *at
    cdef Step step
    cdef Stop stop
    while True:
        step = look(walk)
        if step == STEP_END:
            return STOP_END if walk.position == walk.end else STOP_INCOMPLETE
        if step == STEP_CORRUPT:
            return STOP_LENGTH
        if step == STEP_ERROR:
            return STOP_ERROR
        if walk.magic < 0 or walk.magic > 2:
            return STOP_MAGIC
        epoch = -1
        producer_id = -1
        if walk.magic == 2:
            epoch = <int32_t>load32(walk.header + 12)
            attributes = <int16_t>load16(walk.header + 21)
            producer_id = <int64_t>load64(walk.header + 43)
            producer_epoch = <int16_t>load16(walk.header + 51)
            base_sequence = <int32_t>load32(walk.header + 53)
            delta = <int32_t>load32(walk.header + 23)
        if (walk.base_offset < base_offset or walk.base_offset < found.next_offset
                or walk.last_offset < walk.base_offset):
            return STOP_OFFSET
        relative = walk.last_offset - base_offset
        if relative > 0x7FFFFFFF:
            return STOP_RANGE
        if verify:
            stop = check_crc(walk)
            if stop != STOP_END:
                return stop
    # From here on walk.header may be invalid: check_crc moves the window.
        if producer_id >= 0 and not collect(
            walk, producers, recent, attributes, producer_id, producer_epoch, base_sequence, delta
        ):
            return STOP_MEMORY
        if walk.max_timestamp > found.max_timestamp:
            found.max_timestamp = walk.max_timestamp
            found.max_timestamp_offset = walk.last_offset
        if walk.position - last_entry > interval:
            at = grow(entries, 8)
            if at == NULL:
                return STOP_MEMORY
            (<uint64_t *>at)[0] = <uint64_t>relative << 32 | <uint64_t>walk.position
            if found.max_timestamp > last_stamp:
                last_stamp = found.max_timestamp
                at = grow(stamps, 8)
                if at == NULL:
                    return STOP_MEMORY
                (<int64_t *>at)[0] = last_stamp
                at = grow(stamp_offsets, 4)
                if at == NULL:
                    return STOP_MEMORY
                (<int32_t *>at)[0] = <int32_t>(found.max_timestamp_offset - base_offset)
            last_entry = walk.position
        if epoch > latest_epoch:
            latest_epoch = epoch
            at = grow(epochs, 16)
            if at == NULL:
                return STOP_MEMORY
            (<int64_t *>at)[0] = epoch
            (<int64_t *>at)[1] = walk.base_offset
        if found.batches == 0:
            found.first_timestamp = walk.max_timestamp
        found.batches += 1
        found.next_offset = walk.last_offset + 1
        found.since_entry = walk.position + walk.size - last_entry
        walk.position += walk.size
        found.valid_end = walk.position


def scan(int fd, int64_t position, int64_t end, int64_t base_offset, int64_t interval, bint verify=True):
    """Scan the batches from `position` to `end` and return a Scan; `verify`: check CRCs, not only headers.

    The scan stops before the first invalid batch: one with a wrong length, magic or CRC, or with offsets that do not
    ascend. It creates index entries relative to `base_offset`, as appending each batch would have (Kafka's
    LogSegment.recover): one whenever more than `interval` bytes were written since the last. Format 0 has no timestamps
    and adds nothing to the time index. Of each producer's plain batches it returns at least the last five, of
    transactional and control batches all, ordered by offset. Raises OSError, MemoryError. Takes no locks.
    """
    cdef Walk walk
    cdef Scan found = Scan.__new__(Scan)
    cdef Py_ssize_t room = CHECK if verify else LOOK
    cdef uint8_t *window = <uint8_t *>malloc(room)
    if window == NULL:
        raise MemoryError
    try:
        begin(&walk, fd, position, end, False, window, room)
        found.next_offset = -1
        found.max_timestamp = -1
        found.max_timestamp_offset = base_offset
        collected(&walk, found, base_offset, interval, position, -1, verify, True)
    finally:
        free(window)
    return found


def scan_buffer(const uint8_t[::1] data, int64_t position, int64_t base_offset, int64_t next_offset, int64_t interval,
                int64_t since_entry, int64_t last_stamp, int64_t max_timestamp, int64_t max_timestamp_offset):
    """Check the batches in memory that will be appended at `position` of a segment, and return a Scan.

    The scan is the same as that of a file, and its positions are those in the segment. `next_offset` is the log end
    offset: a batch with a lower offset stops the scan. `since_entry` is the number of bytes between the segment's last
    index entry and `position`, `last_stamp` the timestamp of its last time index entry; `max_timestamp` and its offset
    are the segment's. Releases the GIL from 64 KiB on. Raises MemoryError.
    """
    cdef Walk walk
    cdef Scan found = Scan.__new__(Scan)
    cdef Py_ssize_t size = data.shape[0]
    begin(&walk, -1, position, position + size, False, <uint8_t *>&data[0] if size else NULL, size)
    walk.window_at = position           # all of it is in the window already, so that nothing is ever read
    walk.window_size = size
    found.next_offset = next_offset
    found.max_timestamp = max_timestamp
    found.max_timestamp_offset = max_timestamp_offset
    collected(&walk, found, base_offset, interval, position - since_entry, last_stamp, True, size >= RELEASE_FROM)
    return found


cdef int collected(Walk *walk, Scan found, int64_t base_offset, int64_t interval, int64_t last_entry,
                   int64_t last_stamp, bint verify, bint release) except -1:
    """Run the scan, without the GIL if `release`, and fill `found`."""
    cdef Heap heaps[5]
    cdef Stop stop
    cdef Recent *recent = <Recent *>malloc(RECENT_SLOTS * sizeof(Recent))
    cdef int i
    memset(heaps, 0, sizeof(heaps))
    found.valid_end = walk.position
    found.since_entry = walk.position - last_entry
    found.first_timestamp = -1
    try:
        if recent == NULL:
            raise MemoryError
        memset(recent, 0, RECENT_SLOTS * sizeof(Recent))
        if release:
            with nogil:
                stop = run(walk, found, base_offset, interval, last_entry, last_stamp, verify, heaps, recent)
                sort_producers(&heaps[4])
        else:
            stop = run(walk, found, base_offset, interval, last_entry, last_stamp, verify, heaps, recent)
            sort_producers(&heaps[4])
        if stop == STOP_ERROR and walk.error:
            raise failure(walk, STEP_ERROR)
        if stop == STOP_MEMORY:
            raise MemoryError
        found.offset_entries = taken(&heaps[0])
        found.time_stamps = taken(&heaps[1])
        found.time_offsets = taken(&heaps[2])
        found.epochs = taken(&heaps[3])
        found.producers = taken(&heaps[4])
        found.incomplete = stop == STOP_INCOMPLETE
        found.too_far = stop == STOP_RANGE
        found.stopped_by = sentence(walk, stop)
    finally:
        free(recent)
        for i in range(5):
            free(heaps[i].data)
    return 0


cdef void sort_producers(Heap *producers) noexcept nogil:
    """Sort the batches by offset: `collect` puts a newer batch in the place of a producer's old one."""
    if producers.size:
        qsort(producers.data, producers.size // sizeof(ProducerBatch), sizeof(ProducerBatch), by_base_offset)


cdef object sentence(Walk *walk, Stop stop):
    where = f"at byte {walk.position}"
    if stop == STOP_END:
        return None
    if stop == STOP_ERROR:
        return f"the file ends inside the batch {where}"
    if stop == STOP_INCOMPLETE:
        return f"the batch {where} is not complete: {walk.end - walk.position} bytes are there"
    if stop == STOP_LENGTH:
        return f"the length {where} is not valid for a batch"
    if stop == STOP_MAGIC:
        return f"the batch {where} has magic {walk.magic}, an unknown message format"
    if stop == STOP_CRC:
        return f"the batch {where} (base offset {walk.base_offset}, {walk.size} bytes) has a wrong CRC"
    if stop == STOP_OFFSET:
        return (f"the batch {where} has the offsets {walk.base_offset} to {walk.last_offset}, "
                "which do not follow those before")
    return f"the batch {where} has the last offset {walk.last_offset}, too far from the segment's base offset"
