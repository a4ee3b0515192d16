# cython: language_level=3
"""The rate at which clients use a quota, over windows of time, and how long a client is throttled.

For the same values and times, rates, windows and throttle times are those of Kafka to the millisecond
(tests/data/quotas). In Cython because every request of a client is counted; as no method releases the GIL, any thread
may call them. Sources: Rate, SampledStat, WindowedSum and QuotaUtils of Apache Kafka.
"""

cimport cython
from libc.math cimport floor
from libc.stdlib cimport free, realloc

LONGEST_MS = (1 << 31) - 1  # throttle_time_ms is an int32

cdef enum:
    FIRST_ROOM = 4


@cython.final
cdef class Rate:
    """The rate per second of recorded values.

    A sample has the sum of the values of one window. It is complete after the window, and forgotten when its last value
    is older than all windows together. `windows` are (number of samples, length in ms). Times are in ms; `last_ms` is
    that of the last value, 0 if there was none.
    """

    def __cinit__(self, windows):
        self._number, self._ms = windows
        if self._number < 1 or self._ms < 1:
            raise ValueError(f"a rate needs at least one window of 1 ms, not {windows}")
        self._least_s = (self._number - 1) * self._ms / 1000.0 * (1 - 1e-9)

    def __dealloc__(self):
        free(self._samples)

    def record(self, double value, long long now):
        """Add `value` to the present sample, or to a new one if that is complete."""
        self._record(value, now)

    def record_and_throttle(self, double value, double limit, long long now):
        """Do what `record` does, then return what `throttle_ms` returns."""
        self._record(value, now)
        return self._throttle_ms(limit, now)

    def measure(self, long long now):
        """Return the rate per second at this time."""
        return self._measure(now)

    def window_ms(self, long long now):
        """Return the milliseconds over which the rate is taken: since the oldest sample began, but at least all windows
        without the present one. So a new client may use a whole set of windows at once."""
        return self._window_ms(now)

    def record_if_far_below(self, double value, double limit, long long now):
        """Record `value` and return True, if the rate is certainly not above `limit` then. Otherwise record nothing,
        and return False."""
        if self._total + value > limit * self._least_s:
            return False
        self._record(value, now)
        return True

    def may_exceed(self, double limit, double more=0.0):
        """Return False if the rate is certainly not above `limit` after `more` is recorded."""
        return self._total + more > limit * self._least_s

    def throttle_ms(self, double limit, long long now):
        """Return how many ms must pass without a recorded value until the rate is `limit`. 0 if it is not exceeded.

        With the rate O over a window of W ms and the limit T, that is the X with O * W / (W + X) = T.
        """
        return self._throttle_ms(limit, now)

    cdef int _record(self, double value, long long now) except -1:
        cdef long long at
        if self._count == 0:
            self._add(now)
        cdef Sample *sample = &self._samples[self._at]
        if now - sample.began >= self._ms:
            at = (self._at + 1) % (self._number + 1)
            if at == self._count:
                self._add(now)  # may raise MemoryError: until it returns, there is no sample at `at`
            self._at = at
            sample = &self._samples[at]
            self._total -= sample.sum
            sample.sum = 0.0
            sample.began = now
        sample.sum += value
        sample.last = self.last_ms = now
        self._total += value
        return 0

    cdef int _add(self, long long now) except -1:
        cdef Sample *more
        if self._count == self._room:
            more = <Sample *>realloc(self._samples, (self._room * 2 or FIRST_ROOM) * sizeof(Sample))
            if more == NULL:
                raise MemoryError()
            self._samples = more
            self._room = self._room * 2 or FIRST_ROOM
        if self._count == 0:
            self._expires = now + self._number * self._ms
        self._samples[self._count].sum = 0.0
        self._samples[self._count].began = self._samples[self._count].last = now
        self._count += 1
        return 0

    cdef void _forget_old(self, long long now) noexcept:
        cdef long long age = self._number * self._ms
        cdef long long index
        if self._count == 0 or now < self._expires:
            return
        self._total = 0.0
        self._expires = now + age
        for index in range(self._count):
            if now - self._samples[index].last >= age:
                self._samples[index].sum = 0.0
                self._samples[index].began = self._samples[index].last = now
            self._total += self._samples[index].sum
            self._expires = min(self._expires, self._samples[index].last + age)

    cdef long long _window_ms(self, long long now) except -1:
        cdef long long oldest, elapsed, missing, index
        self._forget_old(now)
        if self._count == 0:
            self._add(now)
        oldest = self._samples[0].began
        for index in range(1, self._count):
            oldest = min(oldest, self._samples[index].began)
        elapsed = now - oldest
        missing = self._number - 1 - elapsed // self._ms
        if missing > 0:
            elapsed += missing * self._ms
        return max(elapsed, 1)

    cdef double _measure(self, long long now) except? -1:
        cdef double total = 0.0
        cdef long long index
        cdef long long window = self._window_ms(now)
        for index in range(self._count):  # added up in Kafka's order, so that not even the last digit differs
            total += self._samples[index].sum
        return total / (window / 1000.0)

    cdef long long _throttle_ms(self, double limit, long long now) except -1:
        cdef double rate, ms
        self._forget_old(now)
        if self._total <= limit * self._least_s:
            return 0
        rate = self._measure(now)
        if rate <= limit:
            return 0
        if limit == 0:
            return LONGEST_MS
        ms = (rate - limit) / limit * self._window_ms(now)
        return LONGEST_MS if ms >= LONGEST_MS else <long long>floor(ms + 0.5)
