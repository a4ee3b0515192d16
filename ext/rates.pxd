# The rate at which clients use a quota, over windows of time.


cdef struct Sample:
    double sum              # of the values that were recorded in the sample
    long long began         # ms
    long long last          # when its last value was recorded, ms


cdef class Rate:
    cdef long long _number      # samples that count
    cdef long long _ms          # length of a complete sample
    cdef double _least_s        # shortest time over which the rate is taken, a bit less for errors of rounding
    cdef Sample *_samples       # a ring buffer with room for one more than _number: the oldest may overlap the windows
    cdef long long _count       # samples there are
    cdef long long _room        # samples that fit into the memory of _samples
    cdef long long _at          # the present sample
    cdef double _total          # of all samples, except for errors of rounding
    cdef long long _expires     # no sample is forgotten before this time
    cdef readonly long long last_ms     # when the last value was recorded

    cdef int _add(self, long long now) except -1
    cdef int _record(self, double value, long long now) except -1
    cdef void _forget_old(self, long long now) noexcept
    cdef long long _window_ms(self, long long now) except -1
    cdef double _measure(self, long long now) except? -1
    cdef long long _throttle_ms(self, double limit, long long now) except -1
