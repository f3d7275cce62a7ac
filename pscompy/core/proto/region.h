/* Regions: memory that peers may put to and get from, and the packed keys by
 * which they name it. */
#ifndef PSCOMPY_PROTO_REGION_H
#define PSCOMPY_PROTO_REGION_H

#include "../memory/access.h"
#include "pscompy/transport/kit/siphash.h"

struct psc_region {
    psc_link_t link;
    psc_worker_t *worker;
    uint64_t id, nonce;
    uint8_t *base;
    uint64_t len;
    psc_target_t target; /* what messages serve of it */
    psc_mem_t *mem[PSC_IFACES_MAX];
};

/* A packed region: this, then `n_keys` keys of {whose, length, bytes}. */
typedef struct psc_region_packed {
    uint8_t check[PSC_SIPHASH_SIZE]; /* of all that follows */
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
/* Take the memory back. PSC_OK: nobody writes or reads it any more, and the
 * region is gone. PSC_INPROGRESS: new accesses are refused, but somebody is in
 * the middle of one; call again after progress. */
psc_status_t psc_region_close(psc_region_t *region);
psc_status_t psc_region_pack(psc_region_t *region, uint8_t *packed,
                             size_t *len_p);
psc_worker_t *psc_region_worker(const psc_region_t *region);

/* Bytes of the region, as its packed key says; 0: it is none. */
uint64_t psc_region_size(const uint8_t *packed, size_t len);
/* Check a packed key, and the bounds of an access. Nothing in a key is believed
 * before its check is right. */
psc_status_t psc_region_parse(const psc_worker_t *worker, const uint8_t *packed,
                              size_t packed_len, uint64_t offset, uint64_t len,
                              psc_region_packed_t *head);
/* The open region that a peer's request names, if it has all of the bytes. */
psc_region_t *psc_region_find(psc_worker_t *worker, const psc_wire_rma_t *wire);
/* The worker ends: how many regions a peer is writing into at this moment. */
unsigned psc_regions_revoke(psc_worker_t *worker);
void psc_regions_destroy(psc_worker_t *worker);

#endif
