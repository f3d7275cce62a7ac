"""The key that all processes of a job share, and where it comes from.

In this order: PSP_KEY (a launcher sets one per job), PSP_KEY_FILE, else the user's own key file
(`pscompy/key` in $XDG_CONFIG_HOME or ~/.config), which is made at first use. A file that other
users could read or write is refused. The key itself never appears in a message.

An attacker who has recorded a handshake, or was dialed by a process, can test keys offline.
Therefore a text is stretched by scrypt, unless it is marked as random bits (`make_key`), of which
there are too many to test. This happens once per process and key, on both sides of a precon.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import hmac
import math
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from pscompy.config.config import Config, launcher_environment, warn
from pscompy.errors import AuthError

FILE_MAX = 4096  # longest key file, bytes


MARK = "PSCOMPY_JOB_KEY"  # a launcher's variable, by which a rank knows the key as that of its job

RANDOM = "random:"  # begins a random key; hexadecimal digits follow
RANDOM_BYTES = 32
SAFE_BITS = 128  # number of random bits from which on a key cannot be guessed

# The parameters of scrypt that OWASP recommends for passwords. Stretching a key with them takes 32
# MiB of memory and about a third of a second.
SCRYPT_N, SCRYPT_R, SCRYPT_P = 1 << 15, 8, 3
SCRYPT_MEMORY = 64 << 20
# The salt is the same everywhere, because the two sides share no other value before they have the
# key.
SALT = b"pscompy key"


class Key(NamedTuple):
    """A key, stretched if it is not random, and where it came from."""

    secret: bytes
    origin: str

    def __repr__(self) -> str:
        return f"<Key from {self.origin}>"

    @property
    def for_memory(self) -> bytes:
        """The key that authenticates remote keys of memory; it does not reveal the secret."""
        return hmac.digest(self.secret, b"pscompy remote keys", "sha256")[:16]


def make_key() -> str:
    """Return a new random key, in the form of PSP_KEY and key files."""
    return RANDOM + os.urandom(RANDOM_BYTES).hex()


def mark_of(key: str) -> str:
    """Return the value of MARK for a key that a launcher has made for its job. The mark reveals
    nothing of a random key."""
    return hashlib.sha256(b"pscompy mark" + key.encode(errors="replace")).hexdigest()[:16]


def find_key(config: Config) -> Key:
    """Return the key of this process. Raises `AuthError` if a key file cannot be used."""
    if key := config["KEY"]:
        made = launcher_environment().get(MARK) == mark_of(key)
        by = ", which `pscompy run` has made for this job" if made else f" ({config.origin('KEY')})"
        return _from_text(key, f"PSP_KEY{by}")
    if config["KEY_FILE"]:
        path = Path(config.expand(config["KEY_FILE"]))
        return _from_text(_read(path), f"PSP_KEY_FILE={path} ({config.origin('KEY_FILE')})")
    path = user_key_file(config)
    return _from_text(_read_or_make(path), f"the user's key file {path}")


def user_key_file(config: Config) -> Path:
    folder = config.expand("$XDG_CONFIG_HOME") or config.expand("~/.config")
    return Path(folder) / "pscompy" / "key"


def _from_text(text: str, origin: str) -> Key:
    stripped = text.strip()
    if not stripped:
        raise AuthError(f"the key from {origin} is empty")
    try:
        stripped.encode()
    except UnicodeEncodeError:
        raise AuthError(f"the key from {origin} is no text in UTF-8") from None
    bits = _bits(stripped)
    if bits < SAFE_BITS:
        warn(
            f"the key from {origin} has {bits} bits at most, which an attacker who records a"
            f" handshake can guess; {RANDOM}$(openssl rand -hex 32) is a better one"
        )
    return Key(_secret(stripped), origin)


@functools.lru_cache(maxsize=16)
def _secret(text: str) -> bytes:
    if _random_bits(text) >= SAFE_BITS:
        return hashlib.sha256(b"pscompy key" + text.encode()).digest()
    try:
        return hashlib.scrypt(
            text.encode(),
            salt=SALT,
            n=SCRYPT_N,
            r=SCRYPT_R,
            p=SCRYPT_P,
            maxmem=SCRYPT_MEMORY,
            dklen=32,
        )
    except (AttributeError, ValueError) as error:
        raise AuthError(
            f"this Python has no scrypt ({error}), which a key needs that is not {RANDOM}..."
        ) from error


def _random_bits(text: str) -> int:
    """Return the number of bits of a key that is marked as random, or 0 for any other key."""
    digits = text.removeprefix(RANDOM)
    marked = digits != text and set(digits) <= _HEX
    return 4 * len(digits) if marked else 0


def _bits(text: str) -> int:
    """Return how many bits the key has at most: as random characters of the kinds that it contains,
    or as random words from a list of 7776."""
    if random := _random_bits(text):
        return random
    words = text.replace("-", " ").replace("_", " ").split()
    kinds = [size for kind, size in _KINDS if any(kind(char) for char in text)]
    by_character = len(text) * math.log2(max(2, sum(kinds)))
    if len(words) > 1 and all(word.isalpha() for word in words):
        return int(min(by_character, len(words) * math.log2(7776)))
    return int(by_character)


_HEX = frozenset("0123456789abcdef")
_KINDS: tuple[tuple[Callable[[str], bool], int], ...] = (
    (str.isdigit, 10),
    (lambda char: char in "abcdef", 6),
    (lambda char: char.islower() and char not in "abcdef", 20),
    (str.isupper, 26),
    (lambda char: not char.isalnum(), 33),
)


def _read_or_make(path: Path) -> str:
    try:
        return _read(path)
    except AuthError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise
    _make(path)
    return _read(path)


def _read(path: Path) -> str:
    try:
        with _opened(path) as descriptor:
            _check(path, os.fstat(descriptor))
            return os.read(descriptor, FILE_MAX).decode("utf-8")
    except AuthError:  # an AuthError is an OSError, too
        raise
    except OSError as error:
        raise AuthError(f"cannot read the key file {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise AuthError(f"the key file {path} is not text") from None


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _check(path: Path, status: os.stat_result) -> None:
    """Raise unless only the owner, who is this user or root, may read or write the file."""
    if not stat.S_ISREG(status.st_mode):
        raise AuthError(f"the key file {path} is not a regular file")
    if status.st_uid not in (os.geteuid(), 0):
        raise AuthError(f"the key file {path} belongs to user {status.st_uid}: make your own")
    if status.st_mode & 0o077:
        mode = stat.S_IMODE(status.st_mode)
        raise AuthError(f"others may use the key file {path} (mode {mode:04o}): chmod 600 {path}")
    if not 0 < status.st_size <= FILE_MAX:
        raise AuthError(f"the key file {path} has {status.st_size} bytes: 1 to {FILE_MAX}")


def _make(path: Path) -> None:
    """Make the key file in one step: of several processes that try, the first one's file stays."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(8).hex()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write_draft(draft)
        try:
            with contextlib.suppress(FileExistsError):
                os.link(draft, path)
        finally:
            draft.unlink()
    except OSError as error:
        raise AuthError(
            f"cannot make the key file {path}: {error.strerror}; set PSP_KEY_FILE or PSP_KEY"
        ) from error


def _write_draft(draft: Path) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(draft, flags, 0o600)
    try:
        os.write(descriptor, (make_key() + "\n").encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
