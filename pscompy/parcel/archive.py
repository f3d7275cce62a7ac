"""Archives: an object as a short head and long buffers that stay where they are. No I/O.

What a serialiser writes is the index; buffers are left in place, as chunks. The head names all of
them in a table, so that the receiver can have memory for them before they arrive, holds those
shorter than `zero_copy` bytes, and as many of the others as there is room for: "Zero copy
serialization using RMA in the HPX distributed task-based runtime" (Biddiscombe et al.), section 3,
calls these index and pointer chunks. Whether a chunk's memory is registered, which makes it an RMA
chunk there, the transports find out by its address, and the key travels with the message that
announces it.

An object without chunks is its pickle, which begins with a byte that no head begins with.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pickle import PickleBuffer
from typing import TYPE_CHECKING, Any

from pscompy.errors import ParcelError, ProtocolError, describe
from pscompy.parcel import array_codec

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from pscompy.parcel.pickling import Serialiser

PICKLE_BYTE = b"\x80"  # what every pickle of protocol 2 and later begins with
MAGIC = b"PCL\x01"
ALIGNMENT = 16  # of chunks within a head
CHUNKS_MAX = 1 << 20
SHORT = 4096  # bytes of a chunk that is copied out of its head

_HEAD = struct.Struct("<4sIIIQ8s")  # magic, ident, chunks, 0, bytes of the index, serialiser
_FRONT = struct.Struct("<4sI")  # of these: magic, ident
_NAME, _ARRAY = slice(24, 32), array_codec.NAME.encode().ljust(8, b"\0")
_IDENT_MAX = 0x7FFFFFFF
_LONE_MAX = 128  # bytes of a head that is worth remembering, and how many of them
_LONE_HEADS = 256
_ENTRY = struct.Struct("<QBB6x")  # bytes, whether it is in the head, whether it is read-only
_PADDING = bytes(ALIGNMENT)
_PIECES_MAX = 8  # of a head that is sent as it is; every transport takes so many


class Archive:
    """An object that was taken apart. `chunks` are the object's own memory: memoryviews of bytes,
    or arrays in order."""

    __slots__ = ("_zero_copy", "chunks", "index", "serialiser")

    def __init__(self, index: bytes, chunks: list[Any], serialiser: str, zero_copy: int) -> None:
        self.index = index
        self.chunks = chunks
        self.serialiser = serialiser
        self._zero_copy = zero_copy

    def pack(self, ident: int, room: int) -> tuple[list[Buffer], list[Any]]:
        """The pieces of the head, and the chunks that go by themselves.

        The head is longer than `room` only by the index and by short chunks, which are always in
        it.
        """
        table, inside, outside = self._place(room)
        head = _HEAD.pack(
            MAGIC, ident, len(self.chunks), 0, len(self.index), self.serialiser.encode()
        )
        front = b"".join((head, *table, self.index))
        if not inside:
            return [front], outside
        pieces: list[Buffer] = [front]
        at = len(front)
        for chunk in inside:
            pieces += [_PADDING[: -at % ALIGNMENT], chunk]
            at += -at % ALIGNMENT + chunk.nbytes
        return _joined(pieces), outside

    def _place(self, room: int) -> tuple[list[bytes], list[Any], list[Any]]:
        """The table, and the chunks within the head and outside of it."""
        table: list[bytes] = []
        inside: list[Any] = []
        outside: list[Any] = []
        entry, zero_copy = _ENTRY.pack, self._zero_copy
        at = _HEAD.size + len(self.chunks) * _ENTRY.size + len(self.index)
        for chunk in self.chunks:
            nbytes = chunk.nbytes
            end = at + -at % ALIGNMENT + nbytes
            fits = end <= room or nbytes < zero_copy
            if fits:
                at = end
                inside.append(chunk)
            else:
                outside.append(chunk)
            table.append(entry(nbytes, fits, readonly(chunk)))
        return table, inside, outside


def _joined(pieces: list[Buffer]) -> list[Buffer]:
    return pieces if len(pieces) <= _PIECES_MAX else [b"".join(pieces)]


def readonly(chunk: Any) -> bool:
    """Whether nobody may write to this chunk."""
    return chunk.readonly if type(chunk) is memoryview else not chunk.flags.writeable


class Entry:
    """A chunk as its head tells of it. `inside` is its memory, None: it comes by itself."""

    __slots__ = ("inside", "nbytes", "readonly")

    def __init__(self, nbytes: int, readonly: bool, inside: memoryview | None) -> None:
        self.nbytes = nbytes
        self.readonly = readonly
        self.inside = inside


class Head:
    """What `parse` makes of the bytes of a head."""

    __slots__ = ("entries", "ident", "index", "serialiser")

    def __init__(
        self, ident: int, serialiser: str, index: memoryview, entries: list[Entry]
    ) -> None:
        self.ident = ident
        self.serialiser = serialiser
        self.index = index
        self.entries = entries

    @property
    def outside(self) -> list[Entry]:
        """The chunks that come by themselves, in this order."""
        return [entry for entry in self.entries if entry.inside is None]


def dump(obj: Any, serialiser: Serialiser, zero_copy: int) -> bytes | Archive:
    """Take an object apart: its pickle, if that is all of it.

    Raises what the serialiser or the object raises.
    """
    if type(obj).__name__ == "ndarray" and (made := _dump_array(obj, serialiser, zero_copy)):
        return made
    left: list[PickleBuffer] = []
    index = serialiser.dumps(obj, left.append)
    if not left and index[:1] == PICKLE_BYTE:
        return index
    return gather(index, left, serialiser, zero_copy)


def gather(
    index: bytes, left: list[PickleBuffer], serialiser: Serialiser, zero_copy: int
) -> Archive:
    """The archive of an object whose serialiser has left these buffers out."""
    return Archive(index, [buffer.raw() for buffer in left], serialiser.name, zero_copy)


def _dump_array(obj: Any, serialiser: Serialiser, zero_copy: int) -> bytes | Archive | None:
    """By itself. What is short is copied anyway, and pickle alone does that in less time."""
    if type(obj).__module__ != "numpy":
        return None
    if obj.nbytes < zero_copy:
        index = serialiser.dumps(obj, _copied)
        return index if index[:1] == PICKLE_BYTE else None
    described = array_codec.describe(obj)
    return described and Archive(described[0], [described[1]], array_codec.NAME, zero_copy)


def _copied(_: PickleBuffer) -> bool:
    return True


def parse(data: Buffer) -> Head:
    """Read a head whose sender is not believed. Copies none that has chunks; `ProtocolError`."""
    view = memoryview(data)
    if view.nbytes <= _LONE_MAX and view[_NAME] == _ARRAY:
        magic, ident = _FRONT.unpack_from(view)
        like = _lone(bytes(view[_FRONT.size :]))
        if like and magic == MAGIC and ident <= _IDENT_MAX:
            return Head(ident, like.serialiser, like.index, like.entries)
    return _parse(view)


@lru_cache(_LONE_HEADS)
def _lone(rest: bytes) -> Head | None:
    """A head of nothing but an array elsewhere: many are alike, but for their ident."""
    head = _parse(memoryview(_FRONT.pack(MAGIC, 0) + rest))
    return head if len(head.outside) == len(head.entries) else None


def _parse(view: memoryview) -> Head:
    if view.nbytes < _HEAD.size:
        raise ProtocolError(f"an archive of {view.nbytes} bytes is too short")
    magic, ident, count, zero, nbytes, name = _HEAD.unpack_from(view)
    if magic != MAGIC or zero != 0 or ident > _IDENT_MAX:
        raise ProtocolError("this is no archive, or one of another version")
    at = _HEAD.size + count * _ENTRY.size
    if count > CHUNKS_MAX or at + nbytes > view.nbytes:
        raise ProtocolError(f"an archive's table of {count} chunks exceeds it")
    table = _ENTRY.iter_unpack(view[_HEAD.size : at])
    entries, end = _entries(view, at + nbytes, table)
    if end != view.nbytes:
        raise ProtocolError(f"an archive has {view.nbytes} bytes, its table says {end}")
    serialiser = name.rstrip(b"\0").decode("ascii", "replace")
    return Head(ident, serialiser, view[at : at + nbytes], entries)


def _entries(
    view: memoryview, at: int, table: Iterable[tuple[int, int, int]]
) -> tuple[list[Entry], int]:
    """The chunks, and where the last one in the head ends."""
    entries = []
    for nbytes, fits, readonly in table:
        inside = None
        if fits > 1 or readonly > 1:
            raise ProtocolError("an archive's table says what nothing means")
        if fits:
            at += -at % ALIGNMENT
            if nbytes > view.nbytes - at:
                raise ProtocolError(f"a chunk of {nbytes} bytes exceeds its archive")
            inside = view[at : at + nbytes]
            at += nbytes
        entries.append(Entry(nbytes, bool(readonly), inside))
    return entries, at


def buffers(head: Head, arrived: Sequence[Buffer]) -> list[memoryview]:
    """All chunks in order, as writable as they were; `arrived` are those that came by themselves.

    `ProtocolError`: one has not the length that the table gives it.
    """
    rest = iter(arrived)
    made = []
    for entry in head.entries:
        view = entry.inside if entry.inside is not None else memoryview(next(rest))
        if entry.inside is not None and entry.nbytes < SHORT:
            view = memoryview(bytearray(view))  # so that it does not keep all of the head
        if view.nbytes != entry.nbytes:
            raise ProtocolError(f"a chunk has {view.nbytes} bytes, its table says {entry.nbytes}")
        made.append(view.toreadonly() if entry.readonly else view)
    return made


def load(head: Head, arrived: Sequence[Buffer], serialiser: Serialiser) -> Any:
    """Put an object together again, over the memory of its chunks.

    `ProtocolError`: chunks and table do not agree. `ParcelError`: the serialiser cannot, with its
    reason as the cause.
    """
    if head.serialiser == array_codec.NAME:
        return _load_array(head, buffers(head, arrived))
    if head.serialiser != serialiser.name:
        raise ParcelError(
            f"the object was written by {head.serialiser!r}, PSP_PARCEL_SERIALISER here says"
            f" {serialiser.name!r}"
        )
    return restore(head.index, buffers(head, arrived), serialiser)


def _load_array(head: Head, chunks: list[memoryview]) -> Any:
    if len(chunks) != 1:
        raise ProtocolError(f"an array has {len(chunks)} chunks")
    return array_codec.make(head.index, chunks[0])


def restore(index: Buffer, chunks: Sequence[Buffer], serialiser: Serialiser) -> Any:
    """What the serialiser makes of an index; its errors become a `ParcelError`."""
    try:
        return serialiser.loads(index, chunks)
    except Exception as error:
        raise refusal(error) from error


def refusal(error: Exception) -> ParcelError:
    """What is raised when unpickling has failed with this."""
    return ParcelError(f"an object cannot be put together: {describe(error)}")
