"""The places that plug-ins come from: folders, installed distributions, and pscompy itself."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module, metadata
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from pscompy.discovery.hooks import Refused
from pscompy.errors import ConfigError
from pscompy.transport.declaration import PROJECT

OWN = (
    "pscompy.plugins.ib",
    "pscompy.plugins.loop",
    "pscompy.plugins.portals",
    "pscompy.plugins.shm",
    "pscompy.plugins.tcp",
)


class Source(NamedTuple):
    """A plug-in that `load` imports: the name of its transport, and its module or file. `own` looks
    up whether the plug-in belongs to pscompy's own distribution."""

    name: str
    place: str
    load: Callable[[], Any]
    own: Callable[[], bool] = bool


def find(folders: str) -> Iterator[Source]:
    """Yield all plug-ins. Of several plug-ins with one name the first that loads and whose
    declaration is valid is taken.

    `folders` is PSP_PLUGINDIR. Raises `ConfigError` if one of them is no folder.
    """
    for folder in filter(None, folders.split(os.pathsep)):
        yield from _in_folder(Path(folder))
    yield from map(_installed, metadata.entry_points(group=PROJECT))
    yield from map(_own, OWN)


def _own(module: str) -> Source:
    return Source(
        module.rpartition(".")[2], module, partial(import_module, module), partial(bool, True)
    )


# ---- installed distributions ------------------------------------------------


def _installed(entry: metadata.EntryPoint) -> Source:
    return Source(entry.name, entry.value, partial(load_entry, entry), partial(_is_own, entry))


def _is_own(entry: metadata.EntryPoint) -> bool:
    """Return whether pscompy's own distribution has this entry point. Parses that distribution's
    metadata, which few sessions need."""
    return entry.dist is not None and entry.dist.name == PROJECT


def load_entry(entry: metadata.EntryPoint) -> Any:
    """Return the object that an entry point names. Raises `Refused` if another file hides its
    module: a `packets.py` beside the user's script, for example, which is not imported then."""
    top = entry.module.partition(".")[0]
    own, spec = _files(entry, top), find_spec(top)
    if own and spec is not None and spec.origin and Path(spec.origin).resolve() not in own:
        assert entry.dist is not None
        raise Refused(
            f"the module {top!r} of {entry.dist.name} is hidden by {spec.origin}:"
            " rename that, or run from another folder"
        )
    return entry.load()


def _files(entry: metadata.EntryPoint, top: str) -> list[Path]:
    """Return the file of the module `top` beside the metadata of the entry's distribution, in a
    list that is empty if there is no such file, as in an editable installation."""
    if entry.dist is None:
        return []
    names = (f"{top}.py", f"{top}/__init__.py")
    places = (Path(str(entry.dist.locate_file(name))) for name in names)
    return [it.resolve() for it in places if it.is_file()]


# ---- PSP_PLUGINDIR ----------------------------------------------------------


def _in_folder(folder: Path) -> Iterator[Source]:
    """Yield the modules and packages in a folder, without names that begin with a dot or
    underscore."""
    if not folder.is_dir():
        raise ConfigError(
            f"PSP_PLUGINDIR: {str(folder)!r} must be a folder",
            name="PSP_PLUGINDIR",
            value=str(folder),
            allowed="a folder",
        )
    for path in sorted(folder.iterdir()):
        file = path / "__init__.py" if path.is_dir() else path
        if path.name[0] not in "._" and file.suffix == ".py" and file.is_file():
            yield Source(path.stem, str(path), partial(_load_file, path.stem, file))


def _load_file(name: str, file: Path) -> ModuleType:
    """Import a file under a name that collides with nothing on sys.path."""
    qualified = f"pscompy_plugindir_{name}"
    spec = spec_from_file_location(qualified, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} cannot be imported")
    module = module_from_spec(spec)
    sys.modules[qualified] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[qualified]
        raise
    return module
