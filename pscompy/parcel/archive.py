"""Archives: an object as a short head and long buffers that stay where they are. No I/O.

The output of the serialiser is the index; the buffers it leaves in place are the chunks. The head
has a table of all chunks, so that the receiver can allocate memory before they arrive. The head
also contains the chunks shorter than `zero_copy` bytes, and as many of the others as fit. "Zero
copy serialization using RMA in the HPX distributed task-based runtime" (Biddiscombe et al.),
section 3, calls these index and pointer chunks. A chunk whose memory is registered is an RMA chunk
in that paper; here the transports look the registration up by address, and its key is part of the
message that announces the chunk.

An object without chunks is sent as its pickle, whose first byte begins no head.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pickle import PickleBuffer
from typing import TYPE_CHECKING, Any, TypeAlias

from pscompy.errors import ParcelError, ProtocolError, describe
from pscompy.parcel import array_codec
from pscompy.parcel.pickling import SHORT

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from pscompy.parcel.pickling import Serialiser

PICKLE_BYTE = b"\x80"  # the first byte of every pickle of protocol 2 and later
MAGIC = b"PCL\x01"
ALIGNMENT = 16  # alignment in bytes of the chunks within a head
CHUNKS_MAX = 1 << 20

# The fields that begin a head: magic, ident (the tag of its chunks), number of chunks, bytes of the
# offer, bytes of the index, name of the serialiser
_HEAD = struct.Struct("<4sIIIQ8s")
_FRONT = struct.Struct("<4sI")  # the first fields of _HEAD: magic, ident
_NAME, _ARRAY = slice(24, 32), array_codec.NAME.encode().ljust(8, b"\0")
_IDENT_MAX = 0x7FFFFFFF
_LONE_MAX = 128  # longest head in bytes that is cached, see _lone()
_LONE_HEADS = 256  # number of cached heads
# a chunk in the head's table: its length, where it is (see _OUTSIDE), whether it is read-only
_ENTRY = struct.Struct("<QBB6x")
# where a chunk is: in a message of its own, in the head, or offered for the receiver to fetch
_OUTSIDE, _INSIDE, _OFFERED = range(3)
_KEY = 72  # bytes that most offers need for each chunk; the head leaves room for them
# If a head has no room for all chunks, it contains no chunk of more bytes than this, unless the
# chunk is shorter than `zero_copy`.
_COPIED = 16 << 10
_PADDING = bytes(ALIGNMENT)
_PIECES_MAX = 8  # pieces of a head that are sent without a copy; every transport takes so many


class Archive:
    """An object divided into `index`, the serialiser's output, and `chunks`, long buffers. The
    chunks are the object's own memory: memoryviews of bytes, or contiguous arrays."""

    __slots__ = ("_zero_copy", "chunks", "index", "serialiser")

    def __init__(self, index: bytes, chunks: list[Any], serialiser: str, zero_copy: int) -> None:
        self.index = index
        self.chunks = chunks
        self.serialiser = serialiser
        self._zero_copy = zero_copy

    def pack(
        self,
        ident: int,
        room: int,
        offer: Callable[[list[Any]], bytes] = lambda chunks: b"",
        eager: int = 0,
    ) -> tuple[list[Buffer], list[Any]]:
        """Return the pieces of the head, and the chunks that are sent in messages with the tag
        `ident`.

        `offer` is called with the chunks outside of the head that are longer than `eager` bytes. If
        it returns any bytes, the receiver fetches these chunks by means of those bytes, and the
        chunks are not sent. The head exceeds `room` bytes only by the index, the offer and short
        chunks, which are always in the head.
        """
        table, inside, outside = self._place(room, eager)
        offered = offer([chunk for chunk in outside if chunk.nbytes > eager])
        if offered:
            outside = [chunk for chunk in outside if chunk.nbytes <= eager]
        name = self.serialiser.encode()
        head = _HEAD.pack(MAGIC, ident, len(self.chunks), len(offered), len(self.index), name)
        front = b"".join((head, *table, self.index, offered))
        if not inside:
            return [front], outside
        pieces: list[Buffer] = [front]
        at = len(front)
        for chunk in inside:
            pieces += [_PADDING[: -at % ALIGNMENT], chunk]
            at += -at % ALIGNMENT + chunk.nbytes
        return _joined(pieces), outside

    def _place(self, room: int, eager: int) -> tuple[list[bytes], list[Any], list[Any]]:
        """Return the table of all chunks, the chunks within the head, and those outside of it.
        Chunks outside that are longer than `eager` bytes have the place _OFFERED, whether they are
        offered or not."""
        table: list[bytes] = []
        inside: list[Any] = []
        outside: list[Any] = []
        entry, zero_copy = _ENTRY.pack, self._zero_copy
        at = _HEAD.size + len(self.chunks) * (_ENTRY.size + _KEY) + len(self.index)
        all_fit = at + sum(chunk.nbytes + ALIGNMENT for chunk in self.chunks) <= room
        longest = room if all_fit else min(room, _COPIED)
        for chunk in self.chunks:
            nbytes = chunk.nbytes
            end = at + -at % ALIGNMENT + nbytes
            fits = nbytes < zero_copy or (nbytes <= longest and end <= room)
            if fits:
                at = end
                inside.append(chunk)
            else:
                outside.append(chunk)
            place = _INSIDE if fits else _OFFERED if nbytes > eager else _OUTSIDE
            table.append(entry(nbytes, place, readonly(chunk)))
        return table, inside, outside


def _joined(pieces: list[Buffer]) -> list[Buffer]:
    return pieces if len(pieces) <= _PIECES_MAX else [b"".join(pieces)]


def readonly(chunk: Any) -> bool:
    """Return whether this chunk, a memoryview or an array, is read-only."""
    return chunk.readonly if type(chunk) is memoryview else not chunk.flags.writeable


# A chunk as the table of its head describes it: its bytes, its place, whether it is read-only, and
# its memory within the head, or None if the chunk is outside of the head.
Entry: TypeAlias = "tuple[int, int, bool, memoryview | None]"


class Head:
    """The result of `parse`: the fields of a head. The chunks with the place _OFFERED are fetched
    by means of `offer`. If `offer` is empty, they arrive in messages, as the others do."""

    __slots__ = ("entries", "ident", "index", "offer", "serialiser")

    def __init__(
        self,
        ident: int,
        serialiser: str,
        index: memoryview,
        entries: list[Entry],
        offer: Buffer = b"",
    ) -> None:
        self.ident = ident
        self.serialiser = serialiser
        self.index = index
        self.entries = entries
        self.offer = offer

    @property
    def outside(self) -> list[int]:
        """The number of bytes of each chunk outside of the head, in the order of the chunks."""
        return [nbytes for nbytes, _, _, inside in self.entries if inside is None]

    @property
    def offered(self) -> list[int]:
        """The number of bytes of each chunk that the receiver fetches by means of `offer`, in the
        order of the chunks; empty without an offer."""
        if not self.offer:
            return []
        return [nbytes for nbytes, place, _, _ in self.entries if place == _OFFERED]

    def in_order(self, sent: Iterable[Any], fetched: Iterable[Any]) -> list[Any]:
        """Return all chunks outside of the head, in the order of `entries`. `sent` are the chunks
        that were sent in messages, `fetched` those that were fetched by means of `offer`."""
        sent, fetched = iter(sent), iter(fetched)
        return [
            next(fetched if place == _OFFERED else sent)
            for _, place, _, inside in self.entries
            if inside is None
        ]


def dump(obj: Any, serialiser: Serialiser, zero_copy: int) -> bytes | Archive:
    """Divide an object into index and chunks; returns its pickle if it has no chunks.

    Chunks shorter than `zero_copy` bytes are copied into the head. Buffers that the receiver would
    copy out of the head again are part of the index, so that a list of many short arrays has no
    chunks. Raises the exceptions of the serialiser and of the object's own methods.
    """
    if type(obj).__name__ == "ndarray" and (made := _dump_array(obj, serialiser, zero_copy)):
        return made
    chunks: list[memoryview] = []
    short = min(zero_copy, SHORT)

    def leave(buffer: PickleBuffer) -> bool:
        view = buffer.raw()
        if view.nbytes < short:
            return True
        chunks.append(view)
        return False

    index = serialiser.dumps(obj, leave)
    if not chunks and index[:1] == PICKLE_BYTE:
        return index
    return Archive(index, chunks, serialiser.name, zero_copy)


def gather(
    index: bytes, left: list[PickleBuffer], serialiser: Serialiser, zero_copy: int
) -> Archive:
    """Return the archive of an object whose serialiser wrote `index` and left out the buffers
    `left`."""
    return Archive(index, [buffer.raw() for buffer in left], serialiser.name, zero_copy)


def _dump_array(obj: Any, serialiser: Serialiser, zero_copy: int) -> bytes | Archive | None:
    """Divide an array that is the whole object. A short array is pickled with its numbers, which
    takes less time. Returns None if the array must be serialised like other objects."""
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
    """Read the head of an untrusted sender. Chunks and index are views of `data`.

    Raises `ProtocolError` if the head is malformed.
    """
    view = memoryview(data)
    if view.nbytes <= _LONE_MAX and view[_NAME] == _ARRAY:
        magic, ident = _FRONT.unpack_from(view)
        like = _lone(bytes(view[_FRONT.size :]))
        if like and magic == MAGIC and ident <= _IDENT_MAX:
            return Head(ident, like.serialiser, like.index, like.entries)
    return _parse(view)


@lru_cache(_LONE_HEADS)
def _lone(rest: bytes) -> Head | None:
    """Parse the part of a head after its ident. Cached, because many heads of single arrays differ
    only in their ident. Returns None if the head contains a chunk."""
    head = _parse(memoryview(_FRONT.pack(MAGIC, 0) + rest))
    return head if len(head.outside) == len(head.entries) else None


def _parse(view: memoryview) -> Head:
    if view.nbytes < _HEAD.size:
        raise ProtocolError(f"an archive of {view.nbytes} bytes is too short")
    magic, ident, count, offered, nbytes, name = _HEAD.unpack_from(view)
    if magic != MAGIC or ident > _IDENT_MAX:
        raise ProtocolError("the data is not an archive, or one of another version")
    at = _HEAD.size + count * _ENTRY.size
    offer_at = at + nbytes
    if count > CHUNKS_MAX or offer_at + offered > view.nbytes:
        raise ProtocolError(f"an archive's table of {count} chunks exceeds it")
    table = _ENTRY.iter_unpack(view[_HEAD.size : at])
    entries, end = _entries(view, offer_at + offered, table)
    if end != view.nbytes:
        raise ProtocolError(f"an archive has {view.nbytes} bytes, its table says {end}")
    serialiser = name.rstrip(b"\0").decode("ascii", "replace")
    offer = view[offer_at : offer_at + offered]
    return Head(ident, serialiser, view[at:offer_at], entries, offer)


def _entries(
    view: memoryview, at: int, table: Iterable[tuple[int, int, int]]
) -> tuple[list[Entry], int]:
    """Return the entries of a head's table (see Entry), and the offset where the last chunk in the
    head ends."""
    entries: list[Entry] = []
    for nbytes, place, readonly in table:
        inside = None
        if place > _OFFERED or readonly > 1:
            raise ProtocolError("an archive's table is malformed")
        if place == _INSIDE:
            at += -at % ALIGNMENT
            if nbytes > view.nbytes - at:
                raise ProtocolError(f"a chunk of {nbytes} bytes exceeds its archive")
            inside = view[at : at + nbytes]
            at += nbytes
        entries.append((nbytes, place, readonly > 0, inside))
    return entries, at


def buffers(head: Head, arrived: Sequence[Buffer]) -> list[memoryview]:
    """Return all chunks in order, each writable if it was writable at the sender. `arrived` are the
    chunks from outside of the head.

    Raises `ProtocolError` if a chunk does not have the length in the table.
    """
    rest = iter(arrived)
    made = []
    for nbytes, _, readonly, inside in head.entries:
        view = inside if inside is not None else memoryview(next(rest, b""))
        if inside is not None and nbytes < SHORT:
            view = memoryview(bytearray(view))  # copied: a view would keep the whole head in memory
        if view.nbytes != nbytes:
            raise ProtocolError(f"a chunk has {view.nbytes} bytes, its table says {nbytes}")
        made.append(view.toreadonly() if readonly else view)
    return made


def load(head: Head, arrived: Sequence[Buffer], serialiser: Serialiser) -> Any:
    """Restore an object over the memory of its chunks.

    Raises `ProtocolError` if chunks and table do not agree, and `ParcelError` if the serialiser
    fails (its exception is the cause) or is not the sender's.
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
    """Restore an object with the serialiser. Raises `ParcelError` with its exception as cause."""
    try:
        return serialiser.loads(index, chunks)
    except Exception as error:
        raise refusal(error) from error


def refusal(error: Exception) -> ParcelError:
    """Return the `ParcelError` to raise when unpickling has failed with `error`."""
    return ParcelError(f"an object cannot be reconstructed: {describe(error)}")
