"""The variables of the pseudo-transport: PSP_GATEWAY_*, and ParaStation's names PSP_GW_*."""

from __future__ import annotations

from pscompy.plugin import Var, integer, size, text

VARIABLES = (
    Var(
        "SERVER",
        "",
        text,
        "Gateways as HOST:PORT, separated by spaces, or the name of a route file.",
        aliases=("GW_SERVER",),
        selects=True,
    ),
    Var(
        "MTU",
        "60k",
        size(2048, 120 << 10),
        "Bytes of one fragment of a message through a gateway. With its headers the default fills"
        " one segment of 64 KiB of the network stack; a little more makes two.",
        aliases=("GW_MTU",),
    ),
    Var(
        "TOKENS",
        "64",
        integer(0, 4096),
        "Fragments that one peer may leave unacknowledged; 0: no limit.",
        aliases=("GW_TOKENS",),
    ),
    Var(
        "PENDING_TOKENS",
        "auto",
        size(auto=True),
        "Fragments received before an acknowledgement is sent; auto: a quarter of the tokens.",
        aliases=("GW_PENDING_TOKENS",),
    ),
    Var(
        "WINDOW",
        "4M",
        size(1),
        "Bytes of copied messages to one peer that are kept until it acknowledges them.",
        aliases=("GW_WINDOW",),
    ),
    Var("MODULE", "0", integer(0, 65535), "The module's number.", parent="MSA_MODULE_ID"),
    Var("KEY", "", text, "Key shared with the gateways.", parent="KEY", secret=True),
    Var("KEY_FILE", "", text, "File that holds this key.", parent="KEY_FILE"),
)
