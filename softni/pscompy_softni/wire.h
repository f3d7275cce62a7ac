/* The wire format of the software NI: UDP datagrams, little-endian. Each begins
 * with a psni_head_t; the body depends on the kind.
 *
 *   HELLO  psni_hello_t: the handshake (handshake.c)
 *   DATA   acknowledgements of earlier puts, one psni_message_t each (`answers`
 *          is their number), and one message or a piece of it:
 *          psni_message_t and its first bytes, or psni_more_t and further
 *          ones; either part may be missing
 *   ACK    no body: the acknowledgement is in the head
 *
 * DATA frames from one NI to another are numbered and taken in that order. */
#pragma once

#include <stdint.h>

#include "api.h"
#include "pscompy/transport/kit/siphash.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "structs are copied to the wire");

/* Messages carry codes of the portals4.h that the build used. NIs of builds
 * with other codes ignore each other's frames. */
#define PSNI_CODES                                                             \
    ((uint32_t)PTL_ACK_REQ << 8 ^ (uint32_t)PTL_NI_DROPPED << 12 ^             \
     (uint32_t)PTL_NI_PT_DISABLED << 16 ^ (uint32_t)PTL_NI_OP_VIOLATION << 20)
/* the bytes "PSN1", changed by PSNI_CODES */
#define PSNI_MAGIC (0x314e5350u ^ PSNI_CODES)
#define PSNI_ANSWERS 8u /* maximum number of ACKs of puts in one DATA frame */
#define PSNI_FRAME_MAX 65507u /* largest payload of a UDP datagram */

typedef enum psni_frame_kind {
    PSNI_FRAME_HELLO = 1,
    PSNI_FRAME_DATA,
    PSNI_FRAME_ACK
} psni_frame_kind_t;

enum { PSNI_FLAG_ACK_NOW = 1 };

typedef struct psni_head {
    uint32_t magic;
    uint8_t kind, flags;
    uint16_t answers;
    uint64_t token; /* token of the receiver, known only to the two NIs */
    uint32_t seq; /* number of this frame; only DATA frames have one */
    /* number of the next frame that the sender expects from the receiver */
    uint32_t ack;
    uint64_t sack; /* bit i: the frame with number ack + 1 + i has arrived */
} psni_head_t;

typedef enum psni_verb {
    PSNI_PUT = 1,
    PSNI_GET,
    PSNI_REPLY, /* reply to a get, with the data that the get requested */
    PSNI_ACK, /* acknowledgement of a put, with its result */
    PSNI_MORE /* psni_more_t: further bytes of the message that has begun */
} psni_verb_t;

enum { /* flags of a psni_message_t with the verb PSNI_ACK */
       PSNI_SILENT = 1, /* the ACK makes no event at the initiator */
       PSNI_UNEXPECTED = 2 /* an entry of the overflow list took the put */
};

typedef struct psni_message {
    uint8_t verb, ack_req, fail, flags;
    uint32_t pt_index;
    /* length of the whole message; in an ACK: number of bytes that the target
     * took */
    uint64_t length;
    uint64_t match_bits;
    uint64_t remote_offset;
    uint64_t hdr_data;
    /* number by which the initiator finds its operation (psni_op_find) */
    uint64_t id;
} psni_message_t;

typedef struct psni_more {
    uint8_t verb;
    uint8_t zero[7];
    uint64_t offset; /* offset of these bytes in the message */
} psni_more_t;

typedef struct psni_hello {
    /* the proof was made with the cookie (a secret) of the sender's NI, not of
     * the receiver's NI */
    uint8_t own;
    /* the sender has received its own token back: no answer is needed */
    uint8_t up;
    uint8_t zero[2];
    uint32_t uid;
    /* token that the sender offers: frames to it are to carry this token */
    uint64_t token;
    /* token that the receiver has offered, or 0 if not known yet */
    uint64_t echo;
    uint64_t window; /* bytes that the sender's socket can hold */
    uint8_t proof[PSC_SIPHASH_SIZE];
} psni_hello_t;

_Static_assert(sizeof(psni_head_t) == 32, "a format");
_Static_assert(sizeof(psni_message_t) == 48, "a format");
_Static_assert(sizeof(psni_more_t) == 16, "a format");
_Static_assert(sizeof(psni_hello_t) == 48, "a format");
