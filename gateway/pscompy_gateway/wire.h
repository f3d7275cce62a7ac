/* The packets between processes and gateways: active messages of one id, whose
 * header is a gw_head_t. Shared by transport/ and daemon/. Gateways read the
 * kind, the hops and the addresses, and count the hops; numbers,
 * acknowledgements and limits concern only the two endpoints.
 *
 * A stream of numbered packets goes each way between two endpoints. Packets may
 * take different gateways, get lost with a gateway, or be duplicated. The
 * receiver puts packets in order and drops duplicates; the sender keeps packets
 * until they are acknowledged. Fields are little-endian, naturally aligned. */
#pragma once

#include <stdint.h>

#define GW_AM_ID 0x67617465u /* id of all packets' active messages */
#define GW_HOPS_MAX 8u /* highest number of gateways that a packet may pass */

typedef enum gw_kind {
    GW_DATA = 1, /* a numbered packet of a stream */
    GW_ACK, /* an acknowledgement without data; if it answers a probe,
               `mark` is copied from the probe */
    GW_PROBE, /* asks for an acknowledgement. Packets that were sent
                 earlier on the same path and that the answer does not
                 acknowledge are lost */
    GW_GONE, /* the endpoint `from_ep` does not exist (any more) */
    GW_UNREACHABLE, /* a gateway knows no way to node `from_node` */
    GW_REGISTER /* tells a gateway that node `from_node` is at the other end
                   of this connection */
} gw_kind_t;

/* Flags of data packets. GW_PROOF: the packet holds a message of the token
 * proof, which authenticates the two ends: its kind (1 byte) and its body.
 * These packets come before all others of the stream. */
#define GW_PROOF 0x1u
#define GW_FIRST 0x2u /* the packet begins with a gw_message_t */
#define GW_BYE 0x4u /* the last packet of the stream */
#define GW_ACK_NOW 0x8u /* the sender waits for the acknowledgement */

typedef struct gw_head {
    uint8_t kind, flags, hops, path; /* path: index of the gateway that the
                                        packet takes, in the sender's
                                        gw_agent.paths */
    uint16_t to_module, from_module;
    uint64_t to_node, from_node;
    uint64_t to_ep, from_ep;
    uint32_t seq; /* number of a data packet in its stream */
    uint32_t ack; /* number of the next data packet that the sender of this
                     header expects */
    uint32_t limit; /* the receiver of this header may send data packets with
                       numbers below this one */
    uint32_t mark; /* in a probe and its answer: the prober's packet clock (see
                      gw_outgoing_t) when it sent the probe */
} gw_head_t;

_Static_assert(sizeof(gw_head_t) == 56, "no holes");

/* The beginning of a message; the message's header and payload follow. */
typedef struct gw_message {
    uint64_t len; /* bytes of payload, in this packet and those that follow */
    uint8_t id, header_len;
    uint8_t reserved[6];
} gw_message_t;

/* The address of an endpoint, as ep_address returns it. */
typedef struct gw_address {
    uint64_t node, ep;
    uint16_t module, reserved[3];
} gw_address_t;
