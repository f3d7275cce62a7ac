/* Registrations and their keys, put and get by cross-memory attach, copies that
 * both sides make, advertised receives, and mapped segments. */
#pragma once

#include "shm.h"

struct psc_mem {
    /* number that the memory's remote keys repeat; 0 if the memory was
     * deregistered or revoked */
    _Atomic uint64_t seal;
    /* the seal before the memory was revoked; 0 if it was not revoked */
    uint64_t revoked;
    /* A peer was still writing into the memory when it was revoked; the timer
     * runs, so that the core asks again. */
    bool awaited;
    uint64_t address, len;
    int fd; /* descriptor of a segment that peers may map, or -1 */
    uint8_t id[SHM_ID_SIZE];
    psc_mem_t *next_free, *next;
};

/* A remote key as it is sent. Both ends run on one machine, so the fields have
 * the machine's byte order. */
typedef struct shm_packed_rkey {
    uint64_t address, len, seal, seal_address;
    uint8_t process[SHM_ID_SIZE];
    /* `fd` and `id` are sent only for memory that peers can map */
    int64_t fd;
    uint8_t id[SHM_ID_SIZE];
} shm_packed_rkey_t;

struct psc_rkey {
    uint64_t address, len, seal, seal_address;
};

/* Functions of cma.c. */
/* Returns true if the peer's process id still denotes the peer. */
bool shm_cma_guarded(const shm_ep_t *ep);
/* Returns the registration whose seal (the number that its keys repeat) is at
 * `seal_address` and has the value `seal`, or NULL. */
const psc_mem_t *shm_mem_find(const shm_iface_t *iface, uint64_t seal_address,
                              uint64_t seal);
/* Reads bytes of the peer's memory. Returns PSC_ERR_INVALID if the key's seal
 * is broken, because the peer has deregistered or revoked the memory. */
psc_status_t shm_cma_read(shm_ep_t *ep, void *buffer, size_t len,
                          const psc_rkey_t *rkey, uint64_t offset);
/* Writes to an address that the peer has sent. */
psc_status_t shm_cma_write(shm_ep_t *ep, const void *buffer, size_t len,
                           uint64_t address);
/* Reads from an address that the peer has sent. */
psc_status_t shm_cma_fetch(shm_ep_t *ep, void *buffer, size_t len,
                           uint64_t address);
psc_status_t shm_cma_put(shm_ep_t *ep, const void *buffer, size_t len,
                         const psc_rkey_t *rkey, uint64_t offset);
/* Copies within this process, if the key's memory is still registered. */
psc_status_t shm_cma_self(const shm_iface_t *iface, void *to, const void *from,
                          size_t len, const psc_rkey_t *rkey);
bool shm_cma_available(void);
/* Reads the peer's memory at address `probe`, and compares it with `nonce`.
 * `mode` is the peer's shm_cma_mode_t. Returns true if cross-memory attach
 * works. */
bool shm_cma_reads(const shm_ep_t *ep, uint8_t mode, uint64_t probe,
                   const uint8_t *nonce);
/* Tries cross-memory attach: reads the peer's probe (random bytes) and writes
 * it to the peer's echo (shm_probe_t). */
bool shm_cma_prove(shm_ep_t *ep, const shm_resources_t *resources);

/* Functions of memory.c. */
psc_status_t shm_put(psc_ep_t *ep, const void *buffer, size_t len,
                     psc_mem_t *mem, psc_rkey_t *rkey, uint64_t offset,
                     psc_comp_t *comp);
psc_status_t shm_get(psc_ep_t *ep, void *buffer, size_t len, psc_mem_t *mem,
                     psc_rkey_t *rkey, uint64_t offset, psc_comp_t *comp);
psc_status_t shm_mem_register(psc_iface_t *iface, psc_ep_t *ep, void *base,
                              size_t len, psc_mem_t **mem_p);
void shm_mem_deregister(psc_iface_t *iface, psc_mem_t *mem);
psc_status_t shm_mem_revoke(psc_iface_t *iface, psc_mem_t *mem);
uint32_t shm_iface_counters(const psc_iface_t *iface, psc_counted_t *counters,
                            uint32_t room);
void shm_mem_close(shm_iface_t *iface);
psc_status_t shm_rkey_pack(psc_iface_t *iface, psc_mem_t *mem, uint8_t *packed,
                           size_t *len_p);
psc_status_t shm_rkey_unpack(psc_ep_t *ep, const uint8_t *packed, size_t len,
                             psc_rkey_t **rkey_p);
void shm_rkey_release(psc_ep_t *ep, psc_rkey_t *rkey);

/* Handles the peer's request to help with its get (copy a part of it). Returns
 * false if the request is invalid. */
bool shm_get_asked(shm_ep_t *ep, shm_word_t word, const uint8_t *bytes);
/* Asks the peer to help with those gets of this side with which it could not be
 * asked before. */
void shm_gets_ask(shm_ep_t *ep);

/* Functions of copy.c. */
#define SHM_PAGES_BITS 20u
#define SHM_COPY_PAGE 4096u
/* longest copy that a cursor can divide */
#define SHM_COPY_MAX (((1ull << SHM_PAGES_BITS) - 1) * SHM_COPY_PAGE)
/* Returns the turn of a cursor for the copy with this number. */
uint64_t shm_cursor_turn(uint64_t number);
/* Sets the cursor to its initial value. `own` bytes are copied already, from
 * the front on. */
void shm_cursor_begin(shm_cursor_t *cursor, uint64_t turn, uint64_t own);
/* Adds a copy, whose fields are set, to those of the endpoint. The endpoint
 * stays active (active.c) while it has one. */
void shm_copy_begin(shm_ep_t *ep, shm_copy_t *copy);
/* Removes a copy from those of the endpoint, without completing it. */
void shm_copy_leave(shm_ep_t *ep, shm_copy_t *copy, psc_status_t status);
/* Copies one piece, or completes a copy. Returns 0 if there was nothing to
 * do. */
unsigned shm_copies_poll(shm_ep_t *ep);
/* Returns true if a copy can continue, because a piece can be copied or the
 * copy can be completed. */
bool shm_copies_pending(const shm_ep_t *ep);
void shm_copies_drop(shm_ep_t *ep);

/* Functions of adverts.c. */
psc_status_t shm_expose(psc_ep_t *ep, psc_exposed_t *recv, uint64_t seen);
psc_status_t shm_conceal(psc_ep_t *ep, psc_exposed_t *recv, uint64_t seen);
uint32_t shm_exposed(psc_ep_t *ep, psc_advertised_t *advertised,
                     uint64_t *seen_p);
psc_status_t shm_claim(psc_ep_t *ep, const psc_advertised_t *advertised,
                       uint64_t bits, const void *buffer, size_t len,
                       psc_comp_t *comp);
/* Handles a record by which the peer reports that it has taken a receive that
 * we expose, to copy a message into it. Returns false if the record is
 * invalid. */
bool shm_adverts_taken(shm_ep_t *ep, shm_word_t word, const uint8_t *bytes);

/* Called when the endpoint is closed: no message is copied into its receives
 * from now on. */
void shm_adverts_close(shm_ep_t *ep);

/* Functions of map.c. */
_Static_assert(SHM_ID_SIZE == PSC_SEGMENT_ID_SIZE, "one size of ids");
psc_status_t shm_mem_share(psc_iface_t *iface, void *base, size_t len, int fd,
                           psc_mem_t **mem_p);
psc_status_t shm_rkey_map(psc_ep_t *ep, const uint8_t *packed, size_t len,
                          psc_map_t **map_p);
