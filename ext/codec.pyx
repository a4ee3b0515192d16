"""Decodes and encodes messages by a compiled schema.

`kafkapy.protocol.reference` is the same codec in Python and explains the encoding; tests give both the same inputs and
require the same values, bytes and errors.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_Check
from cpython.object cimport PyObject_GetAttr, PyObject_SetAttr, PyTypeObject
from cpython.tuple cimport PyTuple_Check, PyTuple_CheckExact, PyTuple_GET_ITEM, PyTuple_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t

from kafkapy._ext.cursor cimport store32

from kafkapy._ext.cursor import ShortBuffer
from kafkapy._ext.varint import BadVarint
from kafkapy.errors import ProtocolError, UnsupportedVersion

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    long long PyLong_AsLongLongAndOverflow(object number, int *overflow) except? -1
    Py_ssize_t PY_SSIZE_T_MAX
    double PyFloat_AsDouble(object number) except? -1.0

cdef enum:
    MAX_STRING = 0x7FFF
    # Structs that are decoded or encoded with the GIL held, some 0.1 ms. A request of the controller may have ten
    # thousand, and all other threads would wait.
    STRUCTS_AT_ONCE = 64

cdef int structs = 0  # since the message began, or the GIL was last released

cdef tuple EMPTY = ()
cdef dict KINDS = {
    "int8": INT8, "int16": INT16, "int32": INT32, "int64": INT64, "bool": BOOL, "float64": FLOAT64, "uuid": UUID,
    "string": STRING, "bytes": BYTES, "records": RECORDS, "struct": STRUCT,
}
cdef tuple KIND_NAMES = tuple(KINDS)


@cython.final
cdef class Step:
    def __init__(self, step, ignorable):
        self.name = step.name
        self.place = step.place
        self.where = step.where
        self.kind = KINDS[step.kind]
        self.array = step.array
        self.nullable = step.nullable
        self.ignorable = step.name in ignorable
        self.default = step.default
        self.tagged = step.tag is not None
        self.tag = step.tag or 0
        self.inner = None if step.layout is None else Program(step.layout)


@cython.final
cdef class Program:
    """Decodes and encodes one message in one version (a `kafkapy.protocol.layout.Layout`).

    Decoding a message whose arrays have more than `max_elements` elements in total raises ProtocolError.
    """

    def __init__(self, layout, max_elements=None):
        self.max_elements = PY_SSIZE_T_MAX if max_elements is None else max_elements
        self.cls = layout.cls
        self.where = layout.where
        self.flexible = layout.flexible
        self.steps = tuple([Step(step, layout.ignorable) for step in layout.steps])
        self.tagged = tuple([Step(step, layout.ignorable) for step in layout.tagged])
        self.absent = tuple([Step(step, layout.ignorable) for step in layout.absent])

    def decode(self, buffer, Py_ssize_t offset=0):
        """Decode the message that begins at `offset`. Raises ProtocolError. Records are slices of `buffer`."""
        global structs
        cdef Reader reader = Reader(buffer, offset)
        cdef Place place
        structs = 0
        place.where = <PyObject *>self.where
        place.limit = place.elements = self.max_elements
        try:
            return self.read(reader, &place)
        except ShortBuffer as short:
            reason = f"{short.wanted} bytes wanted at byte {short.position} with {short.there} bytes left"
        except BadVarint:
            reason = f"the varint at byte {reader.tell()} is longer than 5 bytes"
        raise ProtocolError(f"{<object>place.where}: {reason}")

    def encode(self, message) -> bytes:
        """Encode the message. Raises UnsupportedVersion, and ValueError for a value that does not fit its field."""
        global structs
        cdef Writer writer = Writer(256)
        structs = 0
        self.write(writer, message)
        return PyBytes_FromStringAndSize(<char *>writer.data, writer.size)

    def encode_frame(self, bytes head not None, message) -> bytes:
        """Return a frame: the size of the rest (int32), `head`, the encoded message."""
        global structs
        cdef Writer writer = Writer(256)
        structs = 0
        writer.put_int32(0)
        writer.put_bytes(head)
        self.write(writer, message)
        store32(writer.data, writer.size - 4)
        return PyBytes_FromStringAndSize(<char *>writer.data, writer.size)

    # Decoding

    cdef object read(self, Reader reader, Place *place):
        cdef Step step
        let_others_run()
        cdef object message = (<PyTypeObject *>self.cls).tp_new(self.cls, <PyObject *>EMPTY, NULL)
        for step in self.steps:
            PyObject_SetAttr(message, step.name, self.read_field(reader, place, step))
        for step in self.absent:
            PyObject_SetAttr(message, step.name, default_of(step))
        if self.flexible:
            for step in self.tagged:
                PyObject_SetAttr(message, step.name, default_of(step))
            self.read_tagged(reader, place, message)
        return message

    cdef int read_tagged(self, Reader reader, Place *place, object message) except -1:
        cdef Step step
        cdef uint32_t count, tag
        cdef Py_ssize_t size, end
        place.where = <PyObject *>self.where
        count = reader.get_uvarint()
        while count > 0:
            count -= 1
            place.where = <PyObject *>self.where
            tag = reader.get_uvarint()
            size = reader.get_uvarint()
            reader.need(size)
            end = reader.tell() + size
            for step in self.tagged:
                if step.tag == tag:
                    PyObject_SetAttr(message, step.name, self.read_field(reader, place, step))
                    if reader.tell() != end:
                        raise ProtocolError(
                            f"{step.where}: the field ends at byte {reader.tell()}, but its size says byte {end}"
                        )
                    break
            else:
                reader.advance(size)
        return 0

    cdef object read_field(self, Reader reader, Place *place, Step step):
        cdef Py_ssize_t count
        cdef list values
        place.where = <PyObject *>step.where
        if not step.array:
            return self.read_value(reader, step, place, step.nullable)
        count = self.read_length(reader, step, step.nullable, True)
        if count < 0:
            return None
        if count > reader.left():  # each element takes at least one byte
            raise ProtocolError(
                f"{step.where}: {count} elements claimed at byte {reader.tell()} with {reader.left()} bytes left"
            )
        place.elements -= count
        if place.elements < 0:
            raise ProtocolError(f"{step.where}: the message has more than {place.limit} elements")
        values = []
        while count > 0:
            count -= 1
            place.where = <PyObject *>step.where
            values.append(self.read_value(reader, step, place, False))
        return values

    cdef object read_value(self, Reader reader, Step step, Place *place, bint nullable):
        cdef Kind kind = step.kind
        cdef Py_ssize_t length
        if kind == INT32:
            return reader.get_int32()
        if kind == INT64:
            return reader.get_int64()
        if kind == INT16:
            return reader.get_int16()
        if kind == INT8:
            return reader.get_int8()
        if kind == BOOL:
            return reader.get_int8() != 0
        if kind == UUID:
            return reader.get_bytes(16)
        if kind == FLOAT64:
            return reader.get_float64()
        if kind == STRUCT:
            if nullable and (reader.get_uvarint() == 0 if step.tagged else reader.get_int8() < 0):
                return None
            return step.inner.read(reader, place)
        length = self.read_length(reader, step, nullable, kind != STRING)
        if length < 0:
            return None
        if kind == RECORDS:
            return reader.get_view(length)
        if kind == BYTES:
            return reader.get_bytes(length)
        if length > MAX_STRING:
            raise ProtocolError(f"{step.where}: a string of {length} bytes is longer than {MAX_STRING}")
        text = PyUnicode_DecodeUTF8(<const char *>reader.take(length), length, "replace")
        # An invalid byte becomes three bytes. The string may then be too long for a response or a record.
        if length > MAX_STRING // 3:
            PyUnicode_AsUTF8AndSize(text, &length)
            if length > MAX_STRING:
                raise ProtocolError(
                    f"{step.where}: a string that is not UTF-8, "
                    f"and {length} bytes long with U+FFFD for its invalid bytes"
                )
        return text

    cdef Py_ssize_t read_length(self, Reader reader, Step step, bint nullable, bint wide) except -2:
        cdef Py_ssize_t length
        if self.flexible:
            length = <Py_ssize_t>reader.get_uvarint() - 1
        elif wide:
            length = reader.get_int32()
        else:
            length = reader.get_int16()
        if length >= 0:
            return length
        if not nullable:
            raise ProtocolError(f"{step.where}: null is not allowed here")
        return -1

    # Encoding

    cdef int write(self, Writer writer, object message) except -1:
        cdef Step step
        let_others_run()
        for step in self.absent:
            if not step.ignorable:
                value = value_of(message, step)
                if not is_default(step, value):
                    raise UnsupportedVersion(f"{step.where}: this version cannot carry {value!r}")
        for step in self.steps:
            self.write_field(writer, step, value_of(message, step))
        if self.flexible:
            self.write_tagged(writer, message)
        return 0

    cdef int write_tagged(self, Writer writer, object message) except -1:
        cdef Step step
        cdef Writer content
        cdef list present = []
        for step in self.tagged:
            value = value_of(message, step)
            if not is_default(step, value):
                present.append((step, value))
        writer.put_uvarint(len(present))
        for step, value in present:
            content = Writer(64)
            self.write_field(content, step, value)
            writer.put_uvarint(step.tag)
            writer.put_uvarint(content.size)
            writer.put_raw(content.data, content.size)
        return 0

    cdef int write_field(self, Writer writer, Step step, object value) except -1:
        if not step.array:
            return self.write_value(writer, step, value, step.nullable)
        if value is None:
            return self.write_null(writer, step, step.nullable, True)
        if not PyList_Check(value) and not PyTuple_Check(value):
            raise ValueError(f"{step.where}: {value!r} is not a list")
        self.write_length(writer, step, len(value), True)
        for element in value:
            self.write_value(writer, step, element, False)
        return 0

    cdef int write_value(self, Writer writer, Step step, object value, bint nullable) except -1:
        cdef Kind kind = step.kind
        cdef const char *text
        cdef Py_ssize_t length
        cdef Py_buffer held
        if kind == INT32:
            return writer.put_int32(<int32_t>number(step, value, 32))
        if kind == INT64:
            return writer.put_int64(number(step, value, 64))
        if kind == INT16:
            return writer.put_int16(<int16_t>number(step, value, 16))
        if kind == INT8:
            return writer.put_int8(<int8_t>number(step, value, 8))
        if kind == BOOL:
            return writer.put_int8(1 if value else 0)
        if kind == UUID:
            if not isinstance(value, bytes) or PyBytes_GET_SIZE(value) != 16:
                raise ValueError(f"{step.where}: {value!r} is not a uuid (16 bytes)")
            return writer.put_raw(PyBytes_AS_STRING(value), 16)
        if kind == FLOAT64:
            return writer.put_float64(real(step, value))
        if kind == STRUCT:
            if nullable:
                writer.put_int8(1 if value is not None else 0 if step.tagged else -1)
            if value is not None:
                return step.inner.write(writer, value)
            if not nullable:
                raise ValueError(f"{step.where}: null is not allowed here")
            return 0
        if value is None:
            return self.write_null(writer, step, nullable, kind != STRING)
        if kind == STRING:
            if not isinstance(value, str):
                raise ValueError(f"{step.where}: {value!r} is not a string")
            try:
                text = PyUnicode_AsUTF8AndSize(value, &length)
            except UnicodeEncodeError:  # a lone surrogate, for example of a path, becomes "?", as in Java
                value = (<str>value).encode("utf-8", "replace").decode()
                text = PyUnicode_AsUTF8AndSize(value, &length)
            if length > MAX_STRING:
                raise ValueError(f"{step.where}: a string of {length} bytes is longer than {MAX_STRING}")
            self.write_length(writer, step, length, False)
            return writer.put_raw(text, length)
        try:
            PyObject_GetBuffer(value, &held, PyBUF_SIMPLE)
        except (TypeError, BufferError):
            raise ValueError(f"{step.where}: {value!r} is not a bytes-like object") from None
        try:
            self.write_length(writer, step, held.len, True)
            return writer.put_raw(held.buf, held.len)
        finally:
            PyBuffer_Release(&held)

    cdef int write_null(self, Writer writer, Step step, bint nullable, bint wide) except -1:
        if not nullable:
            raise ValueError(f"{step.where}: null is not allowed here")
        return self.write_length(writer, step, -1, wide)

    cdef int write_length(self, Writer writer, Step step, Py_ssize_t length, bint wide) except -1:
        if length > 0x7FFFFFFE:
            raise ValueError(f"{step.where}: a length of {length} is more than the protocol allows ({0x7FFFFFFE})")
        if self.flexible:
            return writer.put_uvarint(<uint32_t>(length + 1))
        if wide:
            return writer.put_int32(<int32_t>length)
        return writer.put_int16(<int16_t>length)


cdef int let_others_run() except -1:
    """Release the GIL for a moment after every STRUCTS_AT_ONCE structs of a message."""
    global structs
    structs += 1
    if structs > STRUCTS_AT_ONCE:
        structs = 0
        with nogil:
            pass
    return 0


# Return the value of a field of a message, or of a tuple that stands for a message.
cdef inline object value_of(object message, Step step):
    if PyTuple_CheckExact(message):
        if step.place >= PyTuple_GET_SIZE(message):
            raise ValueError(f"{step.where}: {message!r} does not have all fields")
        return <object>PyTuple_GET_ITEM(message, step.place)
    return PyObject_GetAttr(message, step.name)


cdef object default_of(Step step):
    if step.array:
        return [] if step.default is not None else None
    if step.kind == STRUCT and step.default is not None:
        return step.inner.cls()
    return step.default


cdef bint is_default(Step step, object value) except -1:
    if step.default is None or not (step.array or step.kind == STRUCT):
        return value == step.default
    if value is None:
        return False
    if step.array:
        return len(value) == 0
    return value == step.inner.cls()


cdef int64_t number(Step step, object value, int bits) except? -1898313370:
    cdef int overflow = 0
    cdef int64_t result
    try:
        result = PyLong_AsLongLongAndOverflow(value, &overflow)
    except TypeError:
        overflow = 1
        result = 0
    if overflow != 0 or (bits < 64 and (result >> (bits - 1)) not in (0, -1)):
        raise ValueError(f"{step.where}: {value!r} is not a valid {KIND_NAMES[<int>step.kind]}")
    return result


cdef double real(Step step, object value) except? -8983133700127.25:
    try:
        return PyFloat_AsDouble(value)
    except (TypeError, OverflowError):
        raise ValueError(f"{step.where}: {value!r} is not a valid float64") from None
