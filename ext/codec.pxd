# The codec, compiled: the same as `kafkapy.protocol.reference`, field by field.

from cpython.ref cimport PyObject
from libc.stdint cimport uint32_t
from kafkapy._ext.cursor cimport Reader, Writer

cdef enum Kind:
    INT8
    INT16
    INT32
    INT64
    BOOL
    FLOAT64
    UUID
    STRING
    BYTES
    RECORDS
    STRUCT


cdef class Step:
    cdef str name                   # the attribute of the message
    cdef Py_ssize_t place           # the position of the field in a tuple that stands for the message
    cdef str where                  # the field with its path, for errors
    cdef Kind kind
    cdef bint array                 # an array of `kind`
    cdef bint nullable              # null is allowed in this version
    cdef bint ignorable             # if this version lacks the field, its value is dropped instead of rejected
    cdef object default             # NEW_DEFAULT for arrays and structs
    cdef bint tagged                # a tagged field
    cdef uint32_t tag               # its tag
    cdef Program inner              # the codec of a struct


cdef struct Place:
    PyObject *where                 # the field being read, for errors; borrowed from the running Program
    Py_ssize_t limit                # the limit for the elements of all arrays of this message
    Py_ssize_t elements             # the elements that are still allowed


cdef class Program:
    cdef type cls                   # the message class
    cdef str where                  # the path of its tagged section, for errors
    cdef Py_ssize_t max_elements    # the limit for all arrays of a message; only the outermost Program's is used
    cdef bint flexible              # has compact lengths, and a tagged section at the end
    cdef tuple steps                # of Step, in wire order
    cdef tuple tagged               # of Step, by ascending tag
    cdef tuple absent               # of Step: fields that this version does not have

    cdef object read(self, Reader reader, Place *place)
    cdef int read_tagged(self, Reader reader, Place *place, object message) except -1
    cdef object read_field(self, Reader reader, Place *place, Step step)
    cdef object read_value(self, Reader reader, Step step, Place *place, bint nullable)
    # Lengths: -1 for null. If the version is not flexible, `wide` lengths are int32, others (of strings) int16.
    cdef Py_ssize_t read_length(self, Reader reader, Step step, bint nullable, bint wide) except -2

    cdef int write(self, Writer writer, object message) except -1
    cdef int write_tagged(self, Writer writer, object message) except -1
    cdef int write_field(self, Writer writer, Step step, object value) except -1
    cdef int write_value(self, Writer writer, Step step, object value, bint nullable) except -1
    cdef int write_null(self, Writer writer, Step step, bint nullable, bint wide) except -1
    cdef int write_length(self, Writer writer, Step step, Py_ssize_t length, bint wide) except -1
