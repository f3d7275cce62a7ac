"""The case of one serialiser: its times, and the bytes of its archive.

The object has ten arrays in a dictionary and a few numbers. Writing returns the bytes to send; for
out-of-band serialisers these are the bytes besides the arrays, which are not copied.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from statistics import median
from typing import Any

import numpy as np

from bench.rows import OWN, Figures, K, M
from pscompy.cli.sizes import with_unit
from pscompy.parcel import archive as archives
from pscompy.parcel.pickling import Pickle

PARTS = 10  # arrays in the object
LENGTHS = (20 * K, 64 * K, 64 * M)  # bytes of an array

# A serialised object: the archive, and the buffers that are not in it.
Apart = tuple[Any, list[Any]]


def _own(obj: Any) -> Apart:
    made = archives.dump(obj, Pickle(), 4096)
    assert isinstance(made, archives.Archive)
    pieces, outside = made.pack(1, 0)
    return b"".join(pieces), outside


def _own_read(made: Apart) -> Any:
    return archives.load(archives.parse(made[0]), made[1], Pickle())


def _out_of_band(dumps: Callable[..., bytes], obj: Any) -> Apart:
    buffers: list[pickle.PickleBuffer] = []
    return dumps(obj, protocol=5, buffer_callback=buffers.append), buffers


def _msgpack(obj: Any) -> Apart:
    arrays = {name: array.tobytes() for name, array in obj["fields"].items()}
    return import_module("msgpack").packb({**obj, "fields": arrays}), []


def _msgpack_read(made: Apart) -> Any:
    obj = import_module("msgpack").unpackb(made[0], max_bin_len=1 << 31)
    obj["fields"] = {name: np.frombuffer(data) for name, data in obj["fields"].items()}
    return obj


def _arrow(obj: Any) -> Apart:
    arrow = import_module("pyarrow")
    batch = arrow.RecordBatch.from_pydict(obj["fields"])
    sink = arrow.BufferOutputStream()
    with arrow.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return sink.getvalue(), []


def _arrow_read(made: Apart) -> Any:
    return import_module("pyarrow").ipc.open_stream(made[0]).read_all()


def _unpickle(made: Apart) -> Any:
    return pickle.loads(made[0], buffers=made[1])


WAYS: dict[str, tuple[Callable[[Any], Apart], Callable[[Apart], Any]]] = {
    OWN: (_own, _own_read),
    "pickle in-band": (lambda obj: (pickle.dumps(obj, 5), []), _unpickle),
    "pickle 5": (partial(_out_of_band, pickle.dumps), _unpickle),
    "cloudpickle": (
        lambda obj: _out_of_band(import_module("cloudpickle").dumps, obj),
        _unpickle,
    ),
    "msgpack": (_msgpack, _msgpack_read),
    "pyarrow": (_arrow, _arrow_read),
}


def _timed(function: Callable[[], object], seconds: float) -> float:
    """The median time of a call in microseconds, of calls during `seconds` seconds."""
    taken: list[float] = []
    until = time.perf_counter() + seconds
    while len(taken) < 3 or time.perf_counter() < until:
        start = time.perf_counter()
        function()
        taken.append(time.perf_counter() - start)
    return median(taken) * 1e6


def part(size: int, what: str) -> str:
    return f"parts of {with_unit(size)}: {what}"


def archive(library: None, seconds: float, name: str) -> Figures:
    write, read = WAYS[name]
    figures: Figures = {}
    for size in LENGTHS:
        fields = {f"field {n}": np.ones(size // 8) for n in range(PARTS)}
        obj = {"step": 7, "name": "text", "fields": fields}
        made = write(obj)
        figures[part(size, "to write")] = _timed(partial(write, obj), seconds)
        figures[part(size, "to read")] = _timed(partial(read, made), seconds)
        figures[part(size, "archive")] = float(len(made[0]))
    return figures
