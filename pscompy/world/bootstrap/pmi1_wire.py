"""The text of PMI-1, which the launcher's side and the rank's side share.

A message is one line, `cmd=<name> <field>=<value> ...`; a value holds no
white space. (Only the request to spawn processes spans lines: `mcmd=spawn`
up to `endcmd`.) Nothing here does input or output.
"""

from __future__ import annotations

VERSION = 1
SUBVERSION = 1
JOB_PREFIX = "pscompy-"  # begins the names of the jobs that pmi1_server serves
LINE_MAX = 1024  # longest line in bytes that every known implementation accepts, newline included
_BUFFER_MAX = 65536  # maximum number of bytes without a newline; more are an error


class WireError(ValueError):
    """The bytes are not PMI-1."""


def is_word(text: str) -> bool:
    """Return whether a text can be sent as a value."""
    return text.split() == [text] and "\\" not in text and text.isascii()


def pack(command: str, **fields: object) -> bytes:
    """Return one message as a line of bytes.

    ValueError if a value is empty, or contains white space or a backslash.
    """
    words = [f"cmd={command}"]
    for name, value in fields.items():
        text = str(value)
        if not is_word(text):
            raise ValueError(f"{name}={text!r} cannot be sent over PMI")
        words.append(f"{name}={text}")
    return " ".join(words).encode() + b"\n"


def parse(line: bytes) -> tuple[str, dict[str, str]]:
    """Return the command and the fields of one line, with or without its newline."""
    try:
        words = line.decode().split()
    except UnicodeDecodeError as error:
        raise WireError(f"not text: {line[:40]!r}") from error
    fields = dict(word.partition("=")[::2] for word in words)
    command = fields.pop("cmd", "") or fields.pop("mcmd", "")
    if not command:
        raise WireError(f"no command in {line[:40]!r}")
    return command, fields


class LineBuffer:
    """Collects bytes and returns complete lines."""

    def __init__(self) -> None:
        self._partial = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines, without newline, that `data` completes."""
        *lines, self._partial = (self._partial + data).split(b"\n")
        if len(self._partial) > _BUFFER_MAX:
            raise WireError(f"a line of more than {_BUFFER_MAX} bytes")
        return lines
