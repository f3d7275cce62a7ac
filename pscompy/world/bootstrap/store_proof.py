"""The proof that a caller of the store, and the store, hold the job's key."""

from __future__ import annotations

import hmac
import os

VERSION = "1"

Fields = dict[str, str]


def nonce() -> str:
    return os.urandom(16).hex()


def proof(key: bytes, side: str, hello: Fields, challenge: str) -> str:
    """Return the proof of one side ("caller" or "store") for this hello and this challenge."""
    said = "\n".join([side, VERSION, challenge, *(f"{k}={hello[k]}" for k in sorted(hello))])
    return hmac.digest(key, b"pscompy store\n" + said.encode(), "sha256").hex()
