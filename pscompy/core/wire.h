/* The wire format between two cores: the ids of the active messages and their
 * headers. Little-endian, naturally aligned, at most PSC_AM_HEADER_MAX bytes.
 * Every header begins with `credit`: the cumulative number of eager bytes that
 * the sender of the header allows its peer to have sent (modulo 2^32). */
#pragma once

#include <stdint.h>

#include "api.h"
#include "pscompy/transport/kit/check.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the wire format is little-endian and this code does not swap yet"
#endif

/* For each id: its name, and the type of its header. */
#define PSC_WIRE_LIST(X)                                                       \
    X(EAGER, psc_wire_eager_t)     /* payload: the message */                  \
    X(RTS, psc_wire_rts_t)         /* payload: the keys, if any, by which the  \
                                      receiver can get or map the message */   \
    X(RTR, psc_wire_rtr_t)         /* payload: the keys, if any, by which the  \
                                      sender can put the message */            \
    X(FRAG, psc_wire_frag_t)       /* payload: the message's bytes at          \
                                      `offset` */                              \
    X(FIN, psc_wire_fin_t)         /* payload: further request ids, 8 bytes    \
                                      each */                                  \
    X(CREDIT, psc_wire_credit_t)                                               \
    X(CLOSE, psc_wire_credit_t)                                                \
    X(CLOSE_ACK, psc_wire_credit_t)                                            \
    X(RMA_PUT, psc_wire_rma_t)     /* no payload */                            \
    X(RMA_GET, psc_wire_rma_t)                                                 \
    X(TAKEN, psc_wire_taken_t)                                                 \
    X(LANE_DOWN, psc_wire_lane_t)  /* a lane is lost: the sender reads nothing \
                                      from it any more */                      \
    X(LANE_UP, psc_wire_lane_t)    /* a new lane replaces a lost one */        \
    X(SEEN, psc_wire_seen_t)       /* acknowledges ordered messages */         \
    X(RESUME, psc_wire_resume_t)   /* ordered messages go over this lane from  \
                                      now on; see proto/replay.h */            \
    X(ADVERTISE, psc_wire_advertise_t)   /* a receive that the peer may claim; \
                                      see proto/tuple.h */                     \
    X(CONCEAL,                                                                 \
      psc_wire_conceal_t) /* withdraws a receive that was advertised */        \
    X(CONCEALED, psc_wire_conceal_t) /* answers CONCEAL: no claim was made */  \
    X(PLACED, psc_wire_placed_t)   /* a long message was put into a receive    \
                                      that the peer has advertised */          \
    X(MARK, psc_wire_eager_t)      /* a tagged message that marks the place of \
                                      an RTS; see tag.h */                     \
    X(MISSED, psc_wire_eager_t)    /* a message whose payload, sent with the   \
                                      mark, met no receive; its RTS follows */ \
    X(WHOLE, psc_wire_eager_t)     /* a complete message that was sent with    \
                                      the mark; see tag.h */

typedef enum psc_wire_id {
#define PSC_WIRE_ENUM(name, type) PSC_WIRE_##name,
    PSC_WIRE_LIST(PSC_WIRE_ENUM)
#undef PSC_WIRE_ENUM
        PSC_WIRE_COUNT
} psc_wire_id_t;

/* Active messages with ids from here on are made on the receiving side, from
 * the tagged messages of a fabric that matches; a peer may not send them. */
#define PSC_WIRE_MATCHED PSC_WIRE_MARK

typedef struct psc_wire_credit {
    uint32_t credit;
} psc_wire_credit_t;

typedef struct psc_wire_eager {
    uint32_t credit;
    uint32_t tag;
    uint32_t context; /* see psc_wire_context */
} psc_wire_eager_t;

/* The length of an active message's header (`aux`) travels in the low bits of
 * its context, which no other context has (PSC_CONTEXT_END). */
#define PSC_WIRE_AUX 0xffffu

/* The context of a message in its header. aux: 0 unless the message is an
 * active one. */
static inline uint32_t psc_wire_context(uint32_t context, uint16_t aux)
{
    return context | aux;
}

/* Returns true if a header with this context is that of an active message. */
static inline bool psc_wire_is_am(uint32_t context)
{
    return (context & ~PSC_WIRE_AUX) == PSC_CONTEXT_AM;
}

/* The payload of MISSED. A placeholder (the record of a message whose RTS will
 * follow; see tag.h) is made from it. */
typedef struct psc_wire_missed {
    uint64_t len;
    uint32_t number, reserved;
} psc_wire_missed_t;

typedef struct psc_wire_rts {
    uint32_t credit;
    uint32_t tag;
    uint32_t context; /* see psc_wire_context */
    uint16_t n_keys;
    uint16_t flags; /* PSC_RTS_ bits */
    uint64_t send_id;
    uint64_t len;
    /* offset of the message in the memory that the keys open */
    uint64_t offset;
    uint32_t number, reserved; /* with PSC_RTS_LATE: the placeholder's number */
} psc_wire_rts_t;

/* Flag of an RTS: the message is lent (proto/lend.h). Its receiver may read the
 * message in the sender's memory until the receiver sends FIN. */
#define PSC_RTS_LENT 0x1u
/* Flag of an RTS: the receiver has a placeholder of this message already (see
 * tag.h), with the number in the RTS. */
#define PSC_RTS_LATE 0x2u
/* Flag of an RTS: its sender announces no more messages before one of those
 * that it has announced is answered. For texts of errors only. */
#define PSC_RTS_LAST 0x4u

/* The contexts that a fabric which matches can carry: those whose number has at
 * most this many bits, because match bits have room for these bits and the
 * class. */
#define PSC_TAG_NUMBER_BITS 14u
#define PSC_TAG_NUMBER ((1u << PSC_TAG_NUMBER_BITS) - 1)

static inline bool psc_tag_has_context(uint32_t context)
{
    return (context & PSC_CONTEXT_NUMBER) <= PSC_TAG_NUMBER;
}

/* The match bits of a tagged message. */
static inline uint64_t psc_tag_bits(uint32_t context, int32_t tag)
{
    uint64_t packed = (context & ~PSC_CONTEXT_NUMBER) >> 16 | context;

    psc_assert(psc_tag_has_context(context) && tag >= 0);
    return (packed & 0xffff) << PSC_TAG_CONTEXT_SHIFT | (uint32_t)tag;
}

/* Returns the context of these match bits. */
static inline uint32_t psc_tag_context(uint64_t bits)
{
    uint32_t packed = (uint32_t)(bits >> PSC_TAG_CONTEXT_SHIFT);

    return (packed & ~PSC_TAG_NUMBER) << 16 | (packed & PSC_TAG_NUMBER);
}

/* An offer, which a message of the program contains: this head; then for each
 * buffer a psc_wire_part_t and `n_keys` packed keys. */
typedef struct psc_wire_offer {
    uint64_t send_id;
    uint32_t n_parts;
    /* number of keys of each buffer; 0: the receiver asks for fragments */
    uint32_t n_keys;
} psc_wire_offer_t;

typedef struct psc_wire_part {
    uint64_t len;
    uint64_t offset; /* offset of the buffer in the memory that the keys open */
} psc_wire_part_t;

typedef struct psc_wire_rtr {
    uint32_t credit;
    uint32_t n_keys; /* number of keys; 0: the data is to be sent as FRAGs */
    uint64_t send_id;
    uint64_t recv_id;
    uint64_t len; /* bytes to send, at most the RTS's len */
} psc_wire_rtr_t;

typedef struct psc_wire_frag {
    uint32_t credit;
    /* 1 if this fragment is one of the messages that are delivered in order
     * (proto/replay.h), 0 if any lane may carry it */
    uint32_t ordered;
    uint64_t recv_id;
    uint64_t offset;
} psc_wire_frag_t;

typedef struct psc_wire_fin {
    uint32_t credit;
    int32_t status;
    uint64_t request_id; /* id of a request of the FIN's receiver */
} psc_wire_fin_t;

/* Answers the RTS of a message with PSC_RTS_LENT: the receiver now reads the
 * message in the sender's memory, so that its FIN may come much later. */
typedef struct psc_wire_taken {
    uint32_t credit;
    uint32_t reserved;
    uint64_t request_id;
} psc_wire_taken_t;

/* A lane that was lost, or replaces a lost one; see proto/rail.h. */
typedef struct psc_wire_lane {
    uint32_t credit;
    uint32_t index;
} psc_wire_lane_t;

typedef struct psc_wire_seen {
    uint32_t credit;
    /* number of the last ordered message that was delivered, modulo 2^32 */
    uint32_t number;
} psc_wire_seen_t;

typedef struct psc_wire_resume {
    uint32_t credit;
    uint32_t turn; /* number of this RESUME */
    uint32_t first; /* number of the ordered message that follows */
} psc_wire_resume_t;

/* A receive that the peer may claim; see proto/tuple.h. Payload: the packed
 * key by which the peer puts its message. */
typedef struct psc_wire_advertise {
    uint32_t credit;
    uint32_t entry;
    uint64_t generation; /* grows with every ADVERTISE of a connection */
    uint64_t match, ignore; /* as in psc_exposed_t */
    uint64_t len; /* length of the longest message that may claim the receive */
    /* position (psc_position_t) up to which messages of the header's receiver
     * have arrived at the sender of the header */
    uint64_t seen;
} psc_wire_advertise_t;

typedef struct psc_wire_conceal {
    uint32_t credit;
    uint32_t entry;
    uint64_t generation;
    /* as in psc_wire_advertise_t; not valid in CONCEALED */
    uint64_t seen;
} psc_wire_conceal_t;

typedef struct psc_wire_placed {
    psc_wire_eager_t eager;
    uint32_t entry;
    uint64_t generation;
    uint64_t len;
} psc_wire_placed_t;

typedef struct psc_wire_rma {
    uint32_t credit;
    uint32_t reserved;
    uint64_t request_id; /* id of the origin's request */
    uint64_t region;
    uint64_t nonce;
    uint64_t offset;
    uint64_t len;
} psc_wire_rma_t;

/* A packed key in a payload: this head, then `len` bytes. */
typedef struct psc_wire_key {
    uint8_t lane;
    uint8_t len;
} psc_wire_key_t;

#define PSC_LANES_MAX 4u
