"""Measurements of the paper, and contradictions between its text and its own numbers.

Source: Zambre, Chandramowlishwaran, Balaji; the sections named are those of the paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# Section VII of the paper, global array, RDMA writes, 16 threads: message rate in percent of
# that of MPI everywhere.
MEASURED_RATE: Mapping[str, int] = {
    "MPI everywhere": 100,
    "2xDynamic": 108,
    "Dynamic": 94,
    "Shared Dynamic": 65,
    "Static": 64,
    "MPI+threads": 3,
}


@dataclass(frozen=True)
class Contradiction:
    """A contradiction: the paper says `stated`, but `counted` follows from another part of it."""

    about: str
    stated: str
    counted: str
    reason: str


CONTRADICTIONS = (
    Contradiction(
        "memory of one endpoint (section III)",
        "354 KB",
        "345K, as in table I",
        "345K is 256K + 80K + 9K, of 1024 bytes; with PD and MR that is 353568 bytes, 354 KB of"
        " 1000. The 74.2% of the CTX, and 5.39 MB for 16 endpoints, take 345K.",
    ),
    Contradiction(
        "contexts with one TD each in 8K UARs (section III)",
        "907",
        "910",
        "8192 / 9 UARs is 910. 907 follows if 21 to 29 UARs are not available, of which the paper"
        " says nothing.",
    ),
    Contradiction(
        "memory of 2xDynamic, 16 threads (section VII)",
        "1.64 MB",
        "3.03 MiB",
        "1.64 MiB is 256K + 16 x 89K, with the 16 QPs and CQs of Dynamic; 2xDynamic has 32 of"
        " each, 256K + 32 x 89K.",
    ),
    Contradiction(
        "how much lower that is than MPI everywhere (section VII)",
        "3.27x",
        "1.78x",
        "5.39 / 3.03 is 1.78. For Dynamic 5.39 / 1.64 is 3.29, not 3.27.",
    ),
    Contradiction(
        "memory saved by sharing a CTX 16 ways (section V-B)",
        "9x, from 5.15 MB to 0.35 MB",
        "3.29x, from 5.39 MiB to 1.64 MiB",
        "5.15 / 0.35 is 14.7, not 9. By table I it is 16 x 345K against 256K + 16 x 89K. 9 is the"
        " number of UARs of a CTX with one TD, against 1 for another TD in a shared CTX.",
    ),
    Contradiction(
        "maximally independent paths in a context (section V-B)",
        "256, half of the dynamic UARs",
        "512 by the limit of appendix B",
        "A path takes one of the 512 dynamic UARs. 256 follows if the 512 are uUARs, of which a"
        " path takes two. The model warns above 256.",
    ),
    Contradiction(
        "uUARs that Static leaves unused with 16 threads (section VI)",
        "0",
        "1",
        "uUAR 0 takes a QP only if there are no medium uUARs (appendix B).",
    ),
)
