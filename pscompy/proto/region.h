/* Regions: memory that peers may put to and get from, and the packed keys by
 * which they name it. */
#pragma once

#include "../core/memory/access.h"
#include "pscompy/transport/kit/siphash.h"

struct psc_region {
    psc_link_t link;
    psc_worker_t *worker;
    uint64_t id, nonce;
    uint8_t *base;
    uint64_t len;
    psc_target_t target; /* the accesses of peers that are done by messages */
    psc_mem_t *mem[PSC_IFACES_MAX];
};

/* A packed region: this head, then `n_keys` keys, each a
 * psc_region_packed_key_t followed by `len` bytes. */
typedef struct psc_region_packed {
    uint8_t check[PSC_SIPHASH_SIZE]; /* authenticates all bytes that follow */
    uint32_t magic;
    uint32_t n_keys;
    uint64_t id, nonce, len;
} psc_region_packed_t;

typedef struct psc_region_packed_key {
    char transport[15];
    uint8_t len;
    uint16_t rail;
} psc_region_packed_key_t;

psc_status_t psc_region_create(psc_worker_t *worker, void *base, size_t len,
                               psc_region_t **region_p);
/* Take the memory back. Returns PSC_OK if no peer accesses it any more; then
 * the region is freed. Returns PSC_INPROGRESS if an access is still in flight,
 * while new ones are refused; call again after progress. */
psc_status_t psc_region_close(psc_region_t *region);
psc_status_t psc_region_pack(psc_region_t *region, uint8_t *packed,
                             size_t *len_p);

/* Returns the length of the region according to its packed key, or 0 if the key
 * is too short. The key is not authenticated here. */
uint64_t psc_region_size(const uint8_t *packed, size_t len);
/* Check a packed key, and the bounds of an access. No field is used before the
 * key's authentication code was verified. */
psc_status_t psc_region_parse(const psc_worker_t *worker, const uint8_t *packed,
                              size_t packed_len, uint64_t offset, uint64_t len,
                              psc_region_packed_t *head);
/* Returns the open region that a peer's request names; NULL if there is none or
 * the access exceeds its bounds. */
psc_region_t *psc_region_find(psc_worker_t *worker, const psc_wire_rma_t *wire);
/* The worker ends: revoke the keys of all regions. Returns the number of
 * regions that a peer is still writing into. */
unsigned psc_regions_revoke(psc_worker_t *worker);
void psc_regions_destroy(psc_worker_t *worker);
