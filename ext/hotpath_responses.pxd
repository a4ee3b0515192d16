# A Fetch response being encoded. Records are not copied, so the response is a list of parts: bytes and records in turn.

from kafkapy._ext.cursor cimport Writer

cdef class FrameParts:
    cdef Writer writer          # the encoded bytes of all parts
    cdef Py_ssize_t begun       # position in the writer from which on bytes belong to no part yet
    cdef Py_ssize_t parts_size  # total size of the parts that are not in the writer
    cdef Py_ssize_t inlined     # bytes of file regions in the writer
    cdef list parts             # the parts to send; None where bytes of the writer will be
    cdef list spans             # (index in `parts`, begin, end) for each None

    cdef int write_records(self, object records, bint flexible) except -1
    cdef bint read_region(self, object region, Py_ssize_t length) except -1
    cdef int write_size(self, Py_ssize_t length, bint flexible) except -1
    cdef int add_part(self, object part, Py_ssize_t length) except -1
    cdef int end_span(self) except -1
    cdef list finish(self)
