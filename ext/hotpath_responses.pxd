# The parts of a Fetch response while it is written: the records are not copied, so they stand between bytes.

from kafkapy._ext.cursor cimport Writer

cdef class FrameParts:
    cdef Writer writer          # all bytes written here, of all parts
    cdef Py_ssize_t begun       # where in the writer the bytes begin that are in no part yet
    cdef Py_ssize_t beside      # bytes in the parts that are not in the writer
    cdef list parts             # what is to be sent; holes (None) for bytes of the writer
    cdef list spans             # (hole, begin, end) of those bytes

    cdef int write_records(self, object records, bint flexible) except -1
    cdef int write_size(self, Py_ssize_t length, bint flexible) except -1
    cdef int put_beside(self, object part, Py_ssize_t length) except -1
    cdef int end_span(self) except -1
    cdef list finish(self)
