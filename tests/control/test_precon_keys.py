"""The sources of the key, and the places where it may be shown."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pscompy.config.config import Config, ConfigWarning
from pscompy.config.variables import VARIABLES
from pscompy.control.handshake import keys
from pscompy.control.handshake.keys import find_key, user_key_file
from pscompy.errors import AuthError
from tests.names import A_KEY, ANOTHER_KEY
from tests.program import program


def config(home: Path, **settings: str) -> Config:
    return Config.load({"": VARIABLES}, settings, {"HOME": str(home), "XDG_CONFIG_HOME": str(home)})


def test_the_order_of_sources(tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.write_text(ANOTHER_KEY + "\n")
    given.chmod(0o600)
    everything = config(tmp_path, KEY=A_KEY, KEY_FILE=str(given))
    assert find_key(everything).origin == "PSP_KEY (config)"
    from_file = find_key(config(tmp_path, KEY_FILE=str(given)))
    assert from_file.origin == f"PSP_KEY_FILE={given} (config)"
    environ = Config.load({"": VARIABLES}, {}, {"HOME": str(tmp_path), "PSP_KEY": A_KEY})
    assert find_key(environ).origin == "PSP_KEY (environment)"
    assert not user_key_file(config(tmp_path)).exists()
    assert find_key(config(tmp_path)).origin.startswith("the user's key file")


def test_the_same_text_is_the_same_key_wherever_it_is(tmp_path: Path) -> None:
    own = find_key(config(tmp_path))
    text = user_key_file(config(tmp_path)).read_text()
    assert find_key(config(tmp_path, KEY=text.strip())).secret == own.secret
    assert find_key(config(tmp_path, KEY=A_KEY)).secret != own.secret


def test_the_users_file_is_made_for_the_user_alone(tmp_path: Path) -> None:
    path = user_key_file(config(tmp_path / "fresh"))
    first = find_key(config(tmp_path / "fresh"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [entry.name for entry in path.parent.iterdir()] == ["key"]
    assert find_key(config(tmp_path / "fresh")) == first


def print_key(home: str) -> None:
    import sys

    from pscompy.config.config import Config
    from pscompy.config.variables import VARIABLES
    from pscompy.control.handshake.keys import find_key

    config = Config.load({"": VARIABLES}, {}, {"XDG_CONFIG_HOME": home})
    sys.stdin.read()  # all children start at once when the test closes their input
    print(find_key(config).secret.hex())


def test_32_concurrent_starts_agree(tmp_path: Path) -> None:
    read, write = os.pipe()
    starts = [
        subprocess.Popen(
            [sys.executable, "-c", program(print_key, str(tmp_path))],
            stdin=read,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(32)
    ]
    os.close(read)
    os.close(write)
    found = {start.communicate(timeout=250)[0] for start in starts}
    assert len(found) == 1
    assert len(found.pop().strip()) == 64
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


def test_a_key_that_is_no_text_is_refused(tmp_path: Path) -> None:
    given = os.fsdecode(b"\xff\xfepass")
    with pytest.raises(AuthError, match=r"^the key from PSP_KEY \(config\) is no text in UTF-8$"):
        find_key(config(tmp_path, KEY=given))


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


# ---- keys that can be guessed -------------------------------------------------------------------


@pytest.fixture
def stretched(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Records the texts given to scrypt; the cache is empty, as in a process that has seen no
    key yet."""
    given: list[bytes] = []
    scrypt = hashlib.scrypt

    def note(text: bytes, **settings: Any) -> bytes:
        given.append(text)
        return scrypt(text, **settings)

    monkeypatch.setattr(hashlib, "scrypt", note)
    keys._secret.cache_clear()
    return given


def test_a_random_key_costs_no_time(tmp_path: Path, stretched: list[bytes]) -> None:
    made = find_key(config(tmp_path, KEY=keys.make_key()))
    own = find_key(config(tmp_path))
    assert stretched == []
    assert made.secret != own.secret
    assert user_key_file(config(tmp_path)).read_text().startswith(keys.RANDOM)


# 64 digits may be the hash of a password.
@pytest.mark.parametrize("text", ["c3" * 32, "random:ABCDEF" * 9, "a phrase of words " * 12])
def test_what_may_have_been_thought_up_is_stretched_once(
    tmp_path: Path, stretched: list[bytes], text: str
) -> None:
    first, second = (find_key(config(tmp_path, KEY=text)) for _ in range(2))
    assert stretched == [text.strip().encode()]
    assert first == second
    assert first.secret == hashlib.scrypt(
        text.strip().encode(), salt=b"pscompy key", n=1 << 15, r=8, p=3, maxmem=1 << 26, dklen=32
    )


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        ("Sommer2026!", 72),
        ("random:abcd", 16),
        ("correct horse battery staple", 51),
        ("c3" * 15, 120),
        ("123456", 19),
    ],
)
def test_a_key_below_128_bits_is_warned_of(tmp_path: Path, text: str, bits: int) -> None:
    with pytest.warns(
        ConfigWarning, match=rf"PSP_KEY \(config\) has {bits} bits at most"
    ) as caught:
        find_key(config(tmp_path, KEY=text))
    assert text not in str(caught[0].message)


@pytest.mark.parametrize("text", [A_KEY, "random:" + "0f" * 16, "c3" * 32, "Aa1!" * 6])
def test_other_keys_are_not(tmp_path: Path, text: str) -> None:
    key = find_key(config(tmp_path, KEY=text))  # pytest would turn a warning into an error here
    assert key.origin == "PSP_KEY (config)"


def test_without_scrypt_only_random_keys_are_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(hashlib, "scrypt")
    keys._secret.cache_clear()
    find_key(config(tmp_path, KEY=A_KEY))
    with pytest.raises(AuthError, match="has no scrypt"):
        find_key(config(tmp_path, KEY="c3" * 32))
