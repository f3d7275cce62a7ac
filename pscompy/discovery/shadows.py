"""Notices that an installed package is hidden by something else of its name.

A `gateway.py` beside the user's script is what `import gateway` finds. Before
a plug-in or a command is imported, the place that Python would import it from
is compared with where its distribution installed it; the stranger is never run.
"""

from __future__ import annotations

import importlib.util
import json
import os.path
from collections.abc import Collection
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from importlib import metadata


def stranger(module: str, distribution: str, places: Collection[str]) -> str | None:
    """What is in the way of `module` of that distribution, or None.

    `places` are where the distribution has put it: see `origin`. Where it does not tell there is
    nothing to compare with, and the answer is None.
    """
    top = module.partition(".")[0]
    spec = importlib.util.find_spec(top)
    if not places or spec is None:
        return None
    found = _places(spec)
    if found & set(places):
        return None
    return (
        f"the module {top!r} of {distribution} is hidden by {min(found, default='another')}:"
        f" rename that, or run from another folder"
    )


def _places(spec: ModuleSpec) -> set[str]:
    """The files or folders that a module would be imported from."""
    folders = spec.submodule_search_locations
    if folders is not None:
        return {os.path.realpath(folder) for folder in folders}
    return {os.path.realpath(spec.origin)} if spec.origin else set()


def origin(module: str, distribution: metadata.Distribution | None) -> tuple[str, tuple[str, ...]]:
    """The name of a distribution, and the folder or the file that the module's top package is
    when nothing hides it."""
    if distribution is None:
        return "", ()
    top = module.partition(".")[0]
    paths = {
        str(distribution.locate_file(file.parts[0]))
        for file in distribution.files or ()
        if file.parts[0].count(".") < 2 and file.parts[0].partition(".")[0] == top
    }
    if (project := _editable_project(distribution)) is not None:
        names = (top, f"{top}.py", f"src/{top}", f"src/{top}.py")
        paths |= {str(project / name) for name in names}
    existing = {str(Path(path).resolve()) for path in paths if Path(path).exists()}
    return distribution.name, tuple(sorted(existing))


def _editable_project(distribution: metadata.Distribution) -> Path | None:
    """The folder that `pip install -e` was given, if it was."""
    record = json.loads(distribution.read_text("direct_url.json") or "{}")
    if not record.get("dir_info", {}).get("editable"):
        return None
    return Path(unquote(urlsplit(record["url"]).path))
