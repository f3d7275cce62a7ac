/* The packets on a socket: one Unix socket between two endpoints of a node. */
#pragma once

#include "pscompy/transport/kit/token_proof.h"
#include "bitmap.h"

#define SHM_ID_SIZE 16u /* bytes of boot ids, process ids, nonces */

#define SHM_NO_RANK (-1)

#define SHM_MAX_FDS 3u
#define SHM_REFUSAL_MAX SHM_LETTER_SIZE
#define SHM_PACKET_MAGIC 0x6d687370u /* "pshm" */
#define SHM_PACKET_VERSION 8u

typedef enum shm_packet_kind {
    SHM_PACKET_NONE,
    SHM_PACKET_HELLO,     /* ids of both endpoints, and a nonce */
    SHM_PACKET_CHALLENGE, /* the acceptor's half of the token proof */
    /* descriptors of the sender's ring, its doorbell (a pipe that wakes it) and
     * its bitmap (bits, bitmap.h), and a probe of cross-memory attach
     * (shm_resources_t); the connector adds its answer to the challenge */
    SHM_PACKET_RESOURCES,
    /* the connector reports whether cross-memory attach works */
    SHM_PACKET_VERDICT,
    SHM_PACKET_GOODBYE, /* the sender has closed; no packet follows */
    SHM_PACKET_REFUSAL /* the sender refuses; the field `refusal` says why */
} shm_packet_kind_t;

typedef struct shm_hello {
    /* ids of the wanted and of the sender's endpoint */
    uint64_t target, source;
    uint8_t process[SHM_ID_SIZE];
    uint8_t nonce[PSC_PROOF_NONCE_SIZE];
} shm_hello_t;

typedef struct shm_resources {
    shm_geometry_t geometry;
    /* addresses of `bytes` and `echo` of the sender's shm_probe_t, for a test
     * of cross-memory attach */
    uint64_t probe, echo;
    uint8_t nonce[SHM_ID_SIZE]; /* the bytes at `probe` */
    uint8_t cma; /* the sender's shm_cma_mode_t */
    uint8_t expedited; /* the sender is registered for membarrier */
    /* The sender watches the process of the receiver, so it needs no socket to
     * notice that this process has ended. */
    uint8_t guards;
    /* in the acceptor's resources: 1 if the acceptor could read the connector's
     * probe */
    uint8_t verdict;
    /* number of the bit that the receiver sets on the sender's bitmap after it
     * has published a record; or SHM_NO_BIT */
    uint32_t bit;
    uint8_t process[SHM_ID_SIZE]; /* id of the sender's process */
    /* the connector's answer to the challenge; zeros in the acceptor's
     * resources */
    uint8_t answer[PSC_PROOF_SIZE];
} shm_resources_t;

/* All packets have one size. Both ends run on one machine, so the fields have
 * the machine's byte order. Resources, a verdict or a goodbye are used only
 * after their sender has proved that it holds the token; no third process can
 * write to the socket, so packets after the proof need no proof of their own.
 * */
typedef struct shm_packet {
    uint32_t magic;
    uint16_t version, kind;
    union {
        /* first member, because it is the longest: an initialiser then clears
         * the whole union */
        char refusal[SHM_REFUSAL_MAX];
        shm_hello_t hello;
        uint8_t challenge[PSC_PROOF_CHALLENGE_SIZE];
        shm_resources_t resources;
        uint8_t verdict; /* 1: cross-memory attach works */
    } u;
} shm_packet_t;
