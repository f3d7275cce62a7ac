/* The packets between processes and gateways: active messages of one id, whose
 * header is a gw_head. Shared by transport/ and daemon/. Gateways read only the
 * destination; numbers, acknowledgements and limits are between the two ends.
 *
 * A stream of numbered packets goes each way between two endpoints. Packets may
 * take different gateways, get lost with one, or be duplicated: the receiver
 * puts them in order and drops duplicates, the sender keeps packets until they
 * are acknowledged. Little-endian, naturally aligned. */
#ifndef GATEWAY_WIRE_H
#define GATEWAY_WIRE_H

#include <stdint.h>

#define GW_AM_ID 0x67617465u /* id of all packets' active messages */
#define GW_HOPS_MAX 8u       /* gateways on one way; more is a loop */

typedef enum gw_kind {
    GW_DATA = 1,    /* numbered */
    GW_ACK,         /* of numbered ones, by itself; `mark` echoes a probe's */
    GW_PROBE,       /* asks for an acknowledgement: what was sent before it on
                       the same way and is not in that is lost */
    GW_GONE,        /* the endpoint is not there (any more) */
    GW_UNREACHABLE, /* from a gateway: it does not know the way to from_node */
    GW_REGISTER /* to a gateway: from_node is at the end of this stream */
} gw_kind_t;

#define GW_PROOF                                                               \
    0x1u /* data: the token proof, first of a stream: the kind of              \
            message (1 byte), then its body */
#define GW_FIRST 0x2u /* data: begins with a gw_message */
#define GW_BYE 0x4u /* data: the last of a stream */
#define GW_ACK_NOW 0x8u /* data: the sender waits for the acknowledgement */

typedef struct gw_head {
    uint8_t kind, flags, hops, path; /* path: the sender's number for the way */
    uint16_t to_module, from_module;
    uint64_t to_node, from_node;
    uint64_t to_ep, from_ep;
    uint32_t seq; /* data: its number */
    uint32_t ack; /* the next number that is expected */
    uint32_t limit; /* numbers below it may be sent */
    uint32_t mark; /* probe, and its answer: when it was sent */
} gw_head_t;

_Static_assert(sizeof(gw_head_t) == 56, "no holes");

/* Begins a message; its header and its payload follow. */
typedef struct gw_message {
    uint64_t len; /* of the payload, in this packet and those that follow */
    uint8_t id, header_len;
    uint8_t reserved[6];
} gw_message_t;

/* The address that ep_address returns. */
typedef struct gw_address {
    uint64_t node, ep;
    uint16_t module, reserved[3];
} gw_address_t;

#endif
