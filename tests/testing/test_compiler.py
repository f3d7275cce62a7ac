"""Programs in C share the objects that they have in common."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.compiler import Compiler, content


def kept(folder: Path, pattern: str) -> list[Path]:
    found = (folder / "objects").glob(f"{pattern}-*")
    return [path for path in found if path.suffix != ".lock"]


def test_an_object_is_compiled_once(tmp_path: Path) -> None:
    compiler = Compiler(tmp_path / "objects")
    same, other = tmp_path / "same.c", tmp_path / "other.c"
    same.write_text("int value(void);\nint value(void) { return 1; }\n")
    other.write_text("int value(void);\nint main(void) { return value() + ADDED; }\n")
    for added in (2, 3):
        made = compiler(tmp_path / f"add{added}", [same, other], [], [f"-DADDED={added}"])
        assert subprocess.run([made], check=False).returncode == 1 + added
    made = sorted(path.name.split("-")[0] for path in kept(tmp_path, "*.o"))
    assert made == ["other.o", "other.o", "same.o"]


def test_other_flags_make_another_object(tmp_path: Path) -> None:
    compiler = Compiler(tmp_path / "objects")
    source = tmp_path / "level.c"
    source.write_text("int main(void) { return LEVEL; }\n")
    for level in (4, 5):
        made = compiler(tmp_path / f"level{level}", [source], [f"-DLEVEL={level}"])
        assert subprocess.run([made], check=False).returncode == level


def test_a_flag_that_a_source_does_not_use_makes_no_other_object(tmp_path: Path) -> None:
    compiler = Compiler(tmp_path / "objects")
    source = tmp_path / "same.c"
    source.write_text("int main(void) { return 0; }\n")
    for level in (4, 5):
        compiler(tmp_path / f"level{level}", [source], [f"-DLEVEL={level}"])
    compiler(tmp_path / "plain", [source], [])
    assert len(kept(tmp_path, "*.o")) == 1


def test_a_changed_header_makes_another_object_and_nothing_else_does(tmp_path: Path) -> None:
    source, header = tmp_path / "half.c", tmp_path / "half.h"
    source.write_text('#include "half.h"\nint main(void) { return HALF; }\n')
    made = []
    for half in (6, 6, 7):
        header.write_text(f"#define HALF {half}\n")
        content.cache_clear()
        program = Compiler(tmp_path / "objects")(tmp_path / "program", [source], [])
        made.append((subprocess.run([program], check=False).returncode, len(kept(tmp_path, "*.o"))))
    assert made == [(6, 1), (6, 1), (7, 2)]
