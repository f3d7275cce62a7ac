"""The conformance suite over ib, in a guest."""

from __future__ import annotations

from tests.ib.booting import IN_A_GUEST, run_suites

pytestmark = IN_A_GUEST
# malloc keeps what long messages have used: a guest takes 0.1 ms to bring in a page.
KEEP = {"MMAP_THRESHOLD_": 32 << 20, "TRIM_THRESHOLD_": 1 << 30, "TOP_PAD_": 16 << 20}


def test_conformance() -> None:
    keep = {f"MALLOC_{name}": str(nbytes) for name, nbytes in KEEP.items()}
    assert run_suites("suite_conformance.py", **keep) == 0
