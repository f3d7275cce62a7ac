"""Where the key comes from, and who may see it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from pscompy.config import Config
from pscompy.control.keys import find_key, user_key_file
from pscompy.errors import AuthError
from pscompy.variables import VARIABLES


def config(home: Path, **settings: str) -> Config:
    return Config.load({"": VARIABLES}, settings, {"HOME": str(home), "XDG_CONFIG_HOME": str(home)})


def test_the_order_of_sources(tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.write_text("from the file\n")
    given.chmod(0o600)
    everything = config(tmp_path, KEY="from the variable", KEY_FILE=str(given))
    assert find_key(everything).origin == "PSP_KEY"
    assert find_key(config(tmp_path, KEY_FILE=str(given))).origin == f"PSP_KEY_FILE={given}"
    assert not user_key_file(config(tmp_path)).exists()
    assert find_key(config(tmp_path)).origin.startswith("the user's key file")


def test_the_same_text_is_the_same_key_wherever_it_is(tmp_path: Path) -> None:
    own = find_key(config(tmp_path))
    text = user_key_file(config(tmp_path)).read_text()
    assert find_key(config(tmp_path, KEY=text.strip())).secret == own.secret
    assert find_key(config(tmp_path, KEY="another")).id != own.id


def test_the_users_file_is_made_for_the_user_alone(tmp_path: Path) -> None:
    path = user_key_file(config(tmp_path / "fresh"))
    first = find_key(config(tmp_path / "fresh"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [entry.name for entry in path.parent.iterdir()] == ["key"]
    assert find_key(config(tmp_path / "fresh")) == first


def test_32_concurrent_starts_agree(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from pscompy.config import Config\n"
        "from pscompy.control.keys import find_key\n"
        "from pscompy.variables import VARIABLES\n"
        "config = Config.load({'': VARIABLES}, {}, {'XDG_CONFIG_HOME': sys.argv[1]})\n"
        "sys.stdin.read()\n"  # all start at once, when the gate opens
        "print(find_key(config).secret.hex())\n"
    )
    read, write = os.pipe()
    starts = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)],
            stdin=read,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(32)
    ]
    os.close(read)
    os.close(write)
    keys = {start.communicate(timeout=250)[0] for start in starts}
    assert len(keys) == 1
    assert len(keys.pop().strip()) == 64
    assert [entry.name for entry in (tmp_path / "pscompy").iterdir()] == ["key"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o777])
def test_a_file_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "key"
    path.write_text("a secret that others know")
    path.chmod(mode)
    with pytest.raises(AuthError, match=r"chmod 600") as caught:
        find_key(config(tmp_path, KEY_FILE=str(path)))
    assert str(path) in str(caught.value)
    assert "others know" not in str(caught.value)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("somebody's")
    path.chmod(0o600)
    os.chown(path, 4321, -1)
    with pytest.raises(AuthError, match="belongs to user 4321"):
        find_key(config(tmp_path, KEY_FILE=str(path)))


def test_what_is_no_key_file_is_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.touch(0o600)
    blank = tmp_path / "blank"
    blank.write_text(" \n")
    blank.chmod(0o600)
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe")
    binary.chmod(0o600)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    for path in (tmp_path, tmp_path / "missing", empty, blank, binary, pipe):
        with pytest.raises(AuthError, match=str(path)):
            find_key(config(tmp_path, KEY_FILE=str(path)))


def test_a_home_that_cannot_hold_it_says_what_to_set(tmp_path: Path) -> None:
    (tmp_path / "pscompy").touch()
    with pytest.raises(AuthError, match="key file"):
        find_key(config(tmp_path))
