/* The packets on a link: one Unix socket between two endpoints of a node. */
#ifndef PSCOMPY_SHM_WIRE_H
#define PSCOMPY_SHM_WIRE_H

#include "pscompy/transport/kit/token_proof.h"
#include "ring.h"

#define SHM_ID_SIZE 16u /* boot ids, process ids, nonces */

#define SHM_MAX_FDS 2u
#define SHM_REFUSAL_MAX SHM_LETTER_SIZE
#define SHM_PACKET_MAGIC 0x6d687370u /* "pshm" */
#define SHM_PACKET_VERSION 4u

typedef enum shm_packet_kind {
    SHM_PACKET_NONE,
    SHM_PACKET_HELLO,     /* the connector's endpoint, the one it wants */
    SHM_PACKET_CHALLENGE, /* the acceptor's half of the token proof */
    SHM_PACKET_OFFER,     /* a ring, a bell and a probe; the connector's
                             carries its answer to the challenge */
    SHM_PACKET_VERDICT,   /* whether the peer's probe could be read */
    SHM_PACKET_GOODBYE,   /* the sender has closed, nothing follows */
    SHM_PACKET_REFUSAL    /* the sender refuses; text with the reason */
} shm_packet_kind_t;

typedef struct shm_hello {
    uint64_t target, source; /* endpoints */
    uint8_t process[SHM_ID_SIZE];
    uint8_t nonce[PSC_PROOF_NONCE_SIZE];
} shm_hello_t;

typedef struct shm_offer {
    shm_geometry_t geometry;
    uint64_t probe, echo; /* addresses in the offering process */
    uint8_t nonce[SHM_ID_SIZE]; /* what stands at probe */
    uint8_t cma;       /* may be tried */
    uint8_t expedited; /* this process is registered for membarrier */
    uint8_t guards;    /* it watches the peer's process, not the socket */
    uint8_t reserved[5];
    uint8_t answer[PSC_PROOF_SIZE]; /* the connector's; else 0 */
} shm_offer_t;

/* All packets have one size. Both ends run on one machine, so fields are as
 * the machine has them. Each end has proved the token before anything that
 * follows its proof is used; the kernel lets nobody else write to the socket,
 * so the packets that follow carry no proof. */
typedef struct shm_packet {
    uint32_t magic;
    uint16_t version, kind;
    union {
        char refusal[SHM_REFUSAL_MAX]; /* first, because it is the longest:
                                          initialisers clear it all */
        shm_hello_t hello;
        uint8_t challenge[PSC_PROOF_CHALLENGE_SIZE];
        shm_offer_t offer;
        uint8_t verdict; /* 1: cross-memory attach works */
    } u;
} shm_packet_t;

#endif
