/* Remote memory: regions, and puts and gets of the program. */
#pragma once

#include "../core/memory/memory.h"
#include "pscompy/transport/kit/siphash.h"
#include "protocol.h"

/* ---- region.c ---- */

/* Regions: memory that peers may put to and get from, and the packed keys by
 * which they name it. */

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

/* ---- rma.c ---- */

/* One-sided access to registered regions: by the fabric where it can, by
 * messages otherwise. A connection that survives the loss of a lane makes that
 * lane's puts again over another lane. The region stays open meanwhile, so such
 * a connection puts only over lanes whose late puts cannot reach the region
 * (PSC_CAP_PUT_ENDS).
 *
 * A put by messages is a rendezvous without matching: RMA_PUT is answered by
 * RTR, and the target confirms with FIN when the data is in place. A get by
 * messages asks the target for FRAGs. The target finds its region by id and
 * nonce and checks every access against its bounds. */

extern const psc_proto_t psc_rma;

typedef struct psc_rma_args {
    const uint8_t *packed;
    size_t packed_len;
    uint64_t offset;
    bool is_put;
} psc_rma_args_t;

psc_status_t psc_rma_start(psc_conn_t *conn, const psc_send_args_t *args,
                           const psc_rma_args_t *rma,
                           psc_request_t **request_p);
