/* The ring, which carries bytes from one process to another through shared
 * memory.
 *
 * One ring carries one direction of one connection. The sender creates the ring
 * (a sealed memfd) and the receiver maps it. A ring is a row of 64-byte lines;
 * a record takes as many consecutive lines as it needs and begins with one
 * word. The word is 0 until the record is published; storing the word publishes
 * it. Before that the producer zeroes the word of the next record, so that
 * stale payload is never taken for a word. Before a record wraps around for the
 * first time, the row is mapped a second time behind itself, so such a record
 * is contiguous too.
 *
 * A small message is its word, header and payload in one line, so only one
 * cache line moves between the cores. A message longer than a piece, or than a
 * slot if that is shorter, is sent as several records, each published as soon
 * as it is copied, so that both sides copy at the same time.
 *
 * Memory of one ring: round_up(slot_size * slots, page) + one page; of one
 * connection: two rings. Pages are used as they are first touched, and the
 * producer gives those back that it has not used for a while
 * (shm_producer_release). The consumer need not agree: a line that the
 * consumer has freed holds nothing, and an empty page is a page of zeros.
 *
 * Each ring has a file of its own, because whoever can map a file can write all
 * of it, and could read and forge the messages of others. Ranks of one job
 * trust each other that far: all rings of a node share a file (inbox.h).
 *
 * The code here does not trust the other side: each value that the other side
 * can write is read once into a local variable and checked. It uses neither
 * endpoints nor sockets. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "pscompy/transport/transport.h"

#define SHM_LINE 64u
#define SHM_WORD_SIZE 8u
#define SHM_SLOT_MIN 2048u /* keeps max_bcopy at 1 KiB or more */
#define SHM_RING_MAX (256u << 20) /* bytes of the longest ring */
/* length in bytes of each record of a long message, unless slots are shorter */
#define SHM_PIECE (4u << 10)
#define SHM_COPY_STEP (2u << 10)
/* The consumer updates `consumed` after it has freed this many lines: a quarter
 * of the shortest ring, so less than a page of free lines is unreported. */
#define SHM_BATCH_LINES (2 * SHM_SLOT_MIN / SHM_LINE / 4)

/* Kinds of records. A message is one record WHOLE, or a record FIRST and
 * records NEXT. */
typedef enum shm_kind {
    SHM_KIND_NONE,
    SHM_KIND_WHOLE, /* whole message: header, payload */
    SHM_KIND_FIRST, /* start: total payload length (8 bytes), header, payload */
    SHM_KIND_NEXT, /* continuation: payload */
    SHM_KIND_ASK, /* a request to help with a get (memory.c) */
    SHM_KIND_TAKEN, /* an advertised receive was taken (adverts.c) */
    SHM_N_KINDS
} shm_kind_t;

/* The word at the start of a record: 8 bits kind, 8 header_len, 8 id, 8
 * reserved, 32 len, from high to low; len counts the record's bytes behind the
 * word. */
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

/* The end of a copy from which a side takes its pieces (copy.c): the side whose
 * buffer is filled takes them from the front, the other from the back. */
typedef enum shm_side { SHM_FRONT, SHM_BACK } shm_side_t;

/* State of a copy that both sides make (copy.c). */
typedef struct shm_cursor {
    /* From high to low: 23 bits turn, by which copies are told apart; 1 bit by
     * which a side stops the copy; and then the number of pages (20 bits) that
     * SHM_BACK, and that SHM_FRONT, has copied or is copying. */
    _Atomic uint64_t taken;
    _Atomic uint64_t copied[2]; /* bytes that each side has copied */
} shm_cursor_t;

/* maximum number of gets at once with which the peer can help */
#define SHM_HELPED_GETS 4u

/* Cursor of a large get that both sides copy (memory.c). */
typedef struct shm_helped_get {
    _Alignas(128) shm_cursor_t cursor;
} shm_helped_get_t;

/* A receive that the ring's producer advertises: the consumer may take it, to
 * copy a message into it. adverts.c has the states of its word. All fields but
 * the word and `cursor` are written while the entry is free. */
typedef struct shm_entry {
    /* 56 bits generation, 8 bits state (shm_entry_state_t) */
    _Alignas(SHM_LINE) _Atomic uint64_t word;
    _Atomic uint64_t match, ignore, address, len;
    shm_cursor_t cursor; /* its turn is a number made from the generation */
} shm_entry_t;

#define SHM_ENTRIES PSC_EXPOSED_MAX

typedef struct shm_table {
    /* generation of the entry that was advertised last */
    _Alignas(128) _Atomic uint64_t last;
    /* the number `seen` that shm_expose() or shm_conceal() was given last */
    _Atomic uint64_t seen;
    _Atomic uint32_t mask; /* bit set of the entries that may be advertised */
    shm_entry_t entries[SHM_ENTRIES];
} shm_table_t;

#define SHM_WAKE_DOORBELL                                                      \
    1u /* write to the consumer's doorbell (pipe), to wake it */
#define SHM_WAKE_BITMAP 2u /* set a bit on the consumer's bitmap (bitmap.h) */

#define SHM_LETTER_SIZE 200u
/* bit of shm_letter_t.kind: a letter is present */
#define SHM_LETTER 0x10000u

/* The last packet that the producer sends on its socket (socket.c). */
typedef struct shm_letter {
    _Atomic uint32_t kind; /* 0 until the letter is written */
    char text[SHM_LETTER_SIZE];
} shm_letter_t;

/* The words of a ring beside its lines. Each field has one usual writer and two
 * cache lines to itself, because processors fetch lines in pairs. */
typedef struct shm_control {
    /* Written by the consumer: lines freed so far, updated once per
     * SHM_BATCH_LINES. */
    _Alignas(128) _Atomic uint64_t consumed;
    /* The ways (SHM_WAKE_*) in which the producer is to wake the consumer after
     * it has published a record. Set by the consumer; cleared by the producer
     * when it wakes the consumer. */
    _Alignas(128) _Atomic uint32_t sleeping;
    /* Set by the producer, so that the consumer wakes it when lines become
     * free. */
    _Alignas(128) _Atomic uint32_t starving;
    shm_helped_get_t gets[SHM_HELPED_GETS]; /* of the producer (memory.c) */
    _Alignas(128) shm_letter_t letter; /* the producer's last packet */
    /* Written by the producer: seal of the consumer's registration into which a
     * put is being written at this moment, or 0 (memory.c). */
    _Alignas(128) _Atomic uint64_t writing;
    /* The producer's call of a connection, between ranks of a job only
     * (call.h). */
    _Alignas(128) _Atomic uint32_t call;
} shm_control_t;

_Static_assert(sizeof(shm_control_t) + sizeof(shm_table_t) <= 4096, "one page");

typedef struct shm_geometry {
    uint32_t slot_size; /* length of a slot in bytes, a multiple of SHM_LINE */
    uint32_t slots;
} shm_geometry_t;

/* A ring as it is mapped in this process. */
typedef struct shm_ring {
    /* control page of the ring; NULL if the ring is not mapped */
    shm_control_t *control;
    uint8_t *lines;
    uint32_t n_lines;
    uint32_t slot_size;
    bool mirrored; /* the lines are mapped a second time behind themselves */
    /* bytes of address space from `control` on, which shm_ring_unmap frees; 0
     * if the ring is part of a longer mapping */
    size_t mapped;
    /* receives that the producer advertises, for the consumer to copy messages
     * into */
    shm_table_t *table;
} shm_ring_t;

typedef struct shm_producer {
    shm_ring_t ring;
    uint32_t at; /* next line to write */
    /* free lines that the last message needs if it was refused; 0 if it was
     * sent */
    uint32_t need;
    uint64_t produced; /* lines written since the start */
    uint64_t consumed; /* value of control->consumed when it was last read */
    /* number of the line before which shm_producer_fits() allows writing */
    uint64_t limit;
    /* number, counted as `produced` is, of the line up to which
     * shm_producer_release is done: earlier pages were given back to the
     * system, or later lines use their memory again */
    uint64_t kept;
    uint64_t mark; /* `produced` at the last call of shm_producer_release */
} shm_producer_t;

typedef struct shm_consumer {
    shm_ring_t ring;
    uint32_t at; /* next line to read */
    uint64_t consumed;
    uint64_t published; /* value of control->consumed that was last written */
} shm_consumer_t;

/* ---- making and mapping ---- */

/* Returns false if the sizes are out of bounds. */
bool shm_geometry_valid(const shm_geometry_t *geometry);
/* Creates a memfd of `bytes` bytes, sealed against changes of its length. */
psc_status_t shm_file_create(const char *name, size_t bytes, int *fd_p);
/* Returns true if the file is `bytes` long and sealed against shrinking, so
 * that no access to its mapping can fault. */
bool shm_file_verify(int fd, size_t bytes);
/* Creates a sealed memfd for one ring. */
psc_status_t shm_ring_create(const shm_geometry_t *geometry, int *fd_p);
/* Returns the length of a file that holds one ring with its control page. */
size_t shm_ring_file_size(const shm_geometry_t *geometry);
/* Returns the bytes of address space for the lines and for their second mapping
 * (shm_ring_mirror). */
size_t shm_ring_span(const shm_geometry_t *geometry);
/* Fills in `ring` for a ring whose control page, table and lines are mapped
 * already; `lines` has shm_ring_span() bytes. */
void shm_ring_view(shm_ring_t *ring, const shm_geometry_t *geometry,
                   shm_control_t *control, shm_table_t *table, uint8_t *lines);
/* Maps the lines a second time behind themselves, if that was not done before.
 * Returns false if no memory is left. */
bool shm_ring_mirror(shm_ring_t *ring);
/* Maps a ring whose file is known to be long enough. */
psc_status_t shm_ring_map_own(shm_ring_t *ring, const shm_geometry_t *geometry,
                              int fd);
/* Maps a ring. The size and the seals are verified first, so that no access can
 * fault later. Returns PSC_ERR_PROTOCOL if `fd` is not such a ring. */
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

/* Returns the largest number of bytes that a record may hold behind its
 * word. */
static inline uint32_t shm_ring_room(const shm_ring_t *ring)
{
    return ring->slot_size - SHM_WORD_SIZE;
}

/* Returns the length of the records into which a sender divides a long
 * message. */
static inline uint32_t shm_ring_piece(const shm_ring_t *ring)
{
    return ring->slot_size < SHM_PIECE ? ring->slot_size : SHM_PIECE;
}

/* Copies in steps for which memcpy uses no string instruction (rep movs): those
 * instructions take up to three times as long if the two addresses are not
 * aligned alike. */
static inline void shm_ring_copy(uint8_t *to, const uint8_t *from, size_t len)
{
    for (; len > SHM_COPY_STEP; len -= SHM_COPY_STEP) {
        memcpy(to, from, SHM_COPY_STEP);
        to += SHM_COPY_STEP;
        from += SHM_COPY_STEP;
    }
    memcpy(to, from, len);
}

/* ---- producer ---- */

/* Reads how many lines the consumer has freed. Returns PSC_ERR_PROTOCOL if the
 * number is impossible. */
psc_status_t shm_producer_refresh(shm_producer_t *p);
/* Gives back to the system the freed pages that were not written since the last
 * call. Returns true if a later call may find more. */
bool shm_producer_release(shm_producer_t *p);

/* Returns true if `lines` lines may be written without reading
 * control->consumed again. One line more than needed must be free, because the
 * word behind the record is zeroed. */
static inline bool shm_producer_fits(const shm_producer_t *p, uint32_t lines)
{
    return p->produced + lines < p->limit;
}

/* Returns PSC_OK if `lines` lines may be written, and PSC_ERR_NO_RESOURCE if
 * they are not free yet. */
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

/* Returns the address of the bytes of the next record, behind its word. */
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

/* Returns the word of the next record, or 0 if no record has arrived. */
static inline uint64_t shm_consumer_peek(const shm_consumer_t *c)
{
    return atomic_load_explicit(shm_ring_word(&c->ring, c->at),
                                memory_order_acquire);
}

static inline const uint8_t *shm_consumer_bytes(const shm_consumer_t *c)
{
    return c->ring.lines + (size_t)c->at * SHM_LINE + SHM_WORD_SIZE;
}

/* Tells the producer how many lines have been consumed. Returns true if the
 * producer sleeps until lines become free. */
bool shm_consumer_publish(shm_consumer_t *c);

static inline bool shm_consumer_advance(shm_consumer_t *c, uint32_t lines)
{
    c->at = shm_ring_advance(&c->ring, c->at, lines);
    c->consumed += lines;
    if (c->consumed - c->published < SHM_BATCH_LINES)
        return false;
    return shm_consumer_publish(c);
}
