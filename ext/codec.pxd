# The fast codec: what `kafkapy.protocol.reference` does, field by field, without the interpreter in between.

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
    cdef str name                   # attribute of the message
    cdef str where                  # the same with its path, for errors
    cdef Kind kind
    cdef bint array                 # an array of `kind`
    cdef bint nullable              # null is allowed in this version
    cdef bint ignorable             # of an absent field: a value may be lost
    cdef object default             # MADE_ANEW for arrays and structs
    cdef uint32_t tag               # of a tagged field
    cdef Program inner              # of a struct


cdef struct Place:
    PyObject *where                 # the field being read, for errors; borrowed from the Program that is running
    Py_ssize_t limit                # how many elements the arrays of this message may have together
    Py_ssize_t elements             # how many of them are left


cdef class Program:
    cdef type cls                   # the message class
    cdef str where                  # its tagged section, for errors
    cdef Py_ssize_t max_elements    # what a message may have of them; the outermost Program's counts
    cdef bint flexible              # compact lengths, and a tagged section at the end
    cdef tuple steps                # of Step, in the order of the wire
    cdef tuple tagged               # of Step, by ascending tag
    cdef tuple absent               # of Step: fields that this version does not have

    cdef object read(self, Reader reader, Place *place)
    cdef int read_tagged(self, Reader reader, Place *place, object message) except -1
    cdef object read_field(self, Reader reader, Place *place, Step step)
    cdef object read_value(self, Reader reader, Step step, Place *place, bint nullable)
    # Lengths: -1 for null; `wide` is int32, for all but strings, where the version is not flexible.
    cdef Py_ssize_t read_length(self, Reader reader, Step step, bint nullable, bint wide) except -2

    cdef int write(self, Writer writer, object message) except -1
    cdef int write_tagged(self, Writer writer, object message) except -1
    cdef int write_field(self, Writer writer, Step step, object value) except -1
    cdef int write_value(self, Writer writer, Step step, object value, bint nullable) except -1
    cdef int write_null(self, Writer writer, Step step, bint nullable, bint wide) except -1
    cdef int write_length(self, Writer writer, Step step, Py_ssize_t length, bint wide) except -1
