/* The ring: how bytes go from one process to another through shared memory.
 *
 * One ring carries one direction of one connection. The sender makes it (a
 * sealed memfd) and the receiver maps it. It is a row of 64-byte lines; a
 * record takes as many consecutive lines as it needs and begins with one
 * word. The word is 0 while there is nothing; storing it publishes the
 * record. Before that the producer zeroes the word that will follow, so no
 * stale payload is ever taken for a word. The row is mapped twice, one copy
 * behind the other, so a record that wraps around is contiguous too.
 *
 * A small message is its word, header and payload in one line: one cache
 * line travels. A message longer than a slot goes as several records, each
 * published as soon as it is copied, so that both sides copy at a time.
 *
 * Memory of one ring: round_up(slot_size * slots, page) + one page; of one
 * connection: two rings. Pages are used as they are first touched.
 *
 * Nothing here trusts the other side: what it can write is read once into a
 * local and checked. Knows nothing of endpoints or sockets. */
#ifndef PSCOMPY_SHM_RING_H
#define PSCOMPY_SHM_RING_H

#include <stdatomic.h>
#include <stdbool.h>

#include "pscompy/transport/transport.h"

#define SHM_LINE 64u
#define SHM_WORD_SIZE 8u
#define SHM_SLOT_MIN 2048u /* so that max_bcopy is never below 1 KiB */
#define SHM_RING_MAX (256u << 20) /* longest row of lines, bytes */

/* What a record is. A message is one WHOLE, or a FIRST and its NEXTs. */
typedef enum shm_kind {
    SHM_KIND_NONE,
    SHM_KIND_WHOLE, /* header, payload */
    SHM_KIND_FIRST, /* total payload length (8 bytes), header, payload */
    SHM_KIND_NEXT,  /* payload */
    SHM_KIND_ASK,   /* not a message: help with a get (share.c) */
    SHM_N_KINDS
} shm_kind_t;

/* The word: kind 8, header_len 8, id 8, reserved 8, len 32 bits, high to low;
 * len counts what follows the word in the record. */
typedef struct shm_word {
    uint8_t kind, header_len, id, reserved;
    uint32_t len;
} shm_word_t;

static inline uint64_t shm_word_pack(shm_kind_t kind, uint8_t header_len,
                                     uint8_t id, uint32_t len)
{
    return (uint64_t)kind << 56 | (uint64_t)header_len << 48 |
           (uint64_t)id << 40 | len;
}

static inline shm_word_t shm_word_unpack(uint64_t word)
{
    return (shm_word_t){
        .kind = (uint8_t)(word >> 56),
        .header_len = (uint8_t)(word >> 48),
        .id = (uint8_t)(word >> 40),
        .reserved = (uint8_t)(word >> 32),
        .len = (uint32_t)word,
    };
}

#define SHM_SHARE_SLOTS 4u /* gets of one side that both ends copy at once */

/* What the two ends of a large get know of each other (share.c). */
typedef struct shm_share_slot {
    _Alignas(128) _Atomic uint64_t cursor; /* both: turn 24, offset 40 bits;
                                              what lies before it is taken */
    _Atomic uint64_t helped; /* helper: bytes that it has written */
} shm_share_slot_t;

#define SHM_LETTER_SIZE 200u
#define SHM_LETTER 0x10000u /* set where there is one */

/* The last thing that the producer says (mail.c). */
typedef struct shm_letter {
    _Atomic uint32_t kind; /* 0: nothing yet */
    char text[SHM_LETTER_SIZE];
} shm_letter_t;

/* The first page. Each field has one usual writer and two lines to itself,
 * because processors fetch lines in pairs. */
typedef struct shm_control {
    _Alignas(128) _Atomic uint64_t consumed; /* consumer: lines freed so far,
                                                brought up to date now and
                                                then */
    _Alignas(128) _Atomic uint32_t sleeping; /* consumer: wake me when a
                                                record comes */
    _Alignas(128) _Atomic uint32_t starving; /* producer: wake me when lines
                                                come free */
    shm_share_slot_t shares[SHM_SHARE_SLOTS]; /* gets of the producer */
    _Alignas(128) shm_letter_t letter; /* of the producer */
    _Alignas(128) _Atomic uint64_t writing; /* producer: the seal of that
                                               registration of the consumer
                                               that it puts into this moment,
                                               or 0 (memory.c) */
} shm_control_t;

typedef struct shm_geometry {
    uint32_t slot_size; /* bytes, a multiple of SHM_LINE */
    uint32_t slots;
} shm_geometry_t;

/* One mapping of a ring. */
typedef struct shm_ring {
    shm_control_t *control; /* NULL: not mapped */
    uint8_t *lines;
    uint32_t n_lines;
    uint32_t slot_size;
    size_t mapped; /* bytes of address space from `control` on */
} shm_ring_t;

typedef struct shm_producer {
    shm_ring_t ring;
    uint32_t at;       /* next line to write */
    uint32_t need;     /* lines that the last refused message needs, or 0 */
    uint64_t produced; /* lines since the start */
    uint64_t consumed; /* what the consumer last said */
} shm_producer_t;

typedef struct shm_consumer {
    shm_ring_t ring;
    uint32_t at; /* next line to read */
    uint64_t consumed;
    uint64_t published; /* what control->consumed says */
} shm_consumer_t;

/* ---- making and mapping ---- */

/* False: the sizes are absurd. */
bool shm_geometry_valid(const shm_geometry_t *geometry);
size_t shm_geometry_bytes(const shm_geometry_t *geometry);
/* A sealed memfd for one ring. */
psc_status_t shm_ring_create(const shm_geometry_t *geometry, int *fd_p);
/* Map it. The size and the seals are verified first, so that no access can
 * fault later. PSC_ERR_PROTOCOL: this is not such a ring. */
psc_status_t shm_ring_map(shm_ring_t *ring, const shm_geometry_t *geometry,
                          int fd);
void shm_ring_unmap(shm_ring_t *ring);

static inline _Atomic uint64_t *shm_ring_word(const shm_ring_t *ring,
                                              uint32_t line)
{
    return (_Atomic uint64_t *)(void *)(ring->lines + (size_t)line * SHM_LINE);
}

static inline uint32_t shm_ring_lines(size_t bytes)
{
    return (uint32_t)((bytes + SHM_LINE - 1) / SHM_LINE);
}

static inline uint32_t shm_ring_advance(const shm_ring_t *ring, uint32_t at,
                                        uint32_t lines)
{
    uint32_t next = at + lines;
    return next >= ring->n_lines ? next - ring->n_lines : next;
}

/* Most bytes that one record carries behind its word. */
static inline uint32_t shm_ring_room(const shm_ring_t *ring)
{
    return ring->slot_size - SHM_WORD_SIZE;
}

/* ---- producer ---- */

/* Look again how far the consumer is. PSC_ERR_PROTOCOL: it says nonsense. */
psc_status_t shm_producer_refresh(shm_producer_t *p);

/* One line more than needed must be free: the one whose word is zeroed. */
static inline bool shm_producer_fits(const shm_producer_t *p, uint32_t lines)
{
    return p->produced - p->consumed + lines + 1 <= p->ring.n_lines;
}

/* PSC_OK: `lines` lines may be written. PSC_ERR_NO_RESOURCE: later. */
static inline psc_status_t shm_producer_reserve(shm_producer_t *p,
                                                uint32_t lines)
{
    psc_status_t status;

    if (__builtin_expect(shm_producer_fits(p, lines), 1))
        return PSC_OK;
    status = shm_producer_refresh(p);
    if (status != PSC_OK || shm_producer_fits(p, lines))
        return status;
    p->need = lines;
    return PSC_ERR_NO_RESOURCE;
}

/* Where the record's bytes go, behind its word. */
static inline uint8_t *shm_producer_begin(shm_producer_t *p)
{
    return p->ring.lines + (size_t)p->at * SHM_LINE + SHM_WORD_SIZE;
}

static inline void shm_producer_publish(shm_producer_t *p, uint64_t word,
                                        uint32_t lines)
{
    uint32_t next = shm_ring_advance(&p->ring, p->at, lines);

    atomic_store_explicit(shm_ring_word(&p->ring, next), 0,
                          memory_order_relaxed);
    atomic_store_explicit(shm_ring_word(&p->ring, p->at), word,
                          memory_order_release);
    p->at = next;
    p->produced += lines;
}

/* ---- consumer ---- */

/* The next record's word, 0 if there is none. */
static inline uint64_t shm_consumer_peek(const shm_consumer_t *c)
{
    return atomic_load_explicit(shm_ring_word(&c->ring, c->at),
                                memory_order_acquire);
}

static inline const uint8_t *shm_consumer_bytes(const shm_consumer_t *c)
{
    return c->ring.lines + (size_t)c->at * SHM_LINE + SHM_WORD_SIZE;
}

/* Give the lines back. True: the producer sleeps and waits for them. */
bool shm_consumer_publish(shm_consumer_t *c);

static inline bool shm_consumer_advance(shm_consumer_t *c, uint32_t lines)
{
    c->at = shm_ring_advance(&c->ring, c->at, lines);
    c->consumed += lines;
    if (c->consumed - c->published < c->ring.n_lines / 4)
        return false;
    return shm_consumer_publish(c);
}

#endif
