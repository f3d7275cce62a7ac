"""Notices that an installed package is hidden by something else of its name.

A `gateway.py` beside the user's script is what `import gateway` finds. Before
a plug-in or a command is imported, the place that Python would import it from
is compared with where its distribution installed it; the stranger is never run.
"""

from __future__ import annotations

import importlib.util
import json
from importlib import metadata
from importlib.machinery import ModuleSpec
from pathlib import Path
from urllib.parse import unquote, urlsplit


def stranger(module: str, distribution: metadata.Distribution | None) -> str | None:
    """What is in the way of `module` of that distribution, or None.

    Where the distribution does not tell what it installed there is nothing to
    compare with, and the answer is None.
    """
    top = module.partition(".")[0]
    expected = _installed_at(top, distribution) if distribution else set()
    spec = importlib.util.find_spec(top)
    if not expected or spec is None:
        return None
    places = _places(spec)
    if places & expected:
        return None
    assert distribution is not None
    return (
        f"the module {top!r} of {distribution.name} is hidden by {min(places, default='another')}:"
        f" rename that, or run from another folder"
    )


def _places(spec: ModuleSpec) -> set[str]:
    """The files or folders that a module would be imported from."""
    folders = spec.submodule_search_locations
    if folders is not None:
        return {str(Path(folder).resolve()) for folder in folders}
    return {str(Path(spec.origin).resolve())} if spec.origin else set()


def _installed_at(top: str, distribution: metadata.Distribution) -> set[str]:
    """The folder, or the file, that `top` is when nothing hides it."""
    paths = {
        Path(str(distribution.locate_file(Path(file.parts[0]))))
        for file in distribution.files or ()
        if Path(file.parts[0]).stem == top and file.parts[0].count(".") < 2
    }
    if (project := _editable_project(distribution)) is not None:
        names = (top, f"{top}.py", f"src/{top}", f"src/{top}.py")
        paths |= {project / name for name in names}
    return {str(path.resolve()) for path in paths if path.exists()}


def _editable_project(distribution: metadata.Distribution) -> Path | None:
    """The folder that `pip install -e` was given, if it was."""
    record = json.loads(distribution.read_text("direct_url.json") or "{}")
    if not record.get("dir_info", {}).get("editable"):
        return None
    return Path(unquote(urlsplit(record["url"]).path))
