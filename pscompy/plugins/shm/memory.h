/* Memory of two processes: registrations and their keys, put and get by
 * cross-memory attach, gets at which both copy, and mapped segments. */
#ifndef PSCOMPY_SHM_MEMORY_H
#define PSCOMPY_SHM_MEMORY_H

#include "shm.h"

/* memory.c */
struct psc_mem {
    _Atomic uint64_t seal; /* 0: deregistered, or revoked */
    uint64_t revoked; /* the seal that it had, or 0 */
    bool awaited;     /* a peer is writing into it: look again soon */
    uint64_t address, len;
    int fd; /* of a segment that peers may map, or -1 */
    uint8_t id[SHM_ID_SIZE];
    psc_mem_t *next_free, *next;
};

/* What travels. Both ends run on one machine, so the bytes are its own. */
typedef struct shm_packed_rkey {
    uint64_t address, len, seal, seal_address;
    uint8_t process[SHM_ID_SIZE];
    int64_t fd; /* from here on: only of what can be mapped */
    uint8_t id[SHM_ID_SIZE];
} shm_packed_rkey_t;

struct psc_rkey {
    uint64_t address, len, seal, seal_address;
};

/* Is the peer's process id still the peer's? */
bool shm_cma_guarded(const shm_ep_t *ep);
/* The registration whose seal stands at this address, NULL: none does. */
const psc_mem_t *shm_mem_find(const shm_iface_t *iface, uint64_t seal_address,
                              uint64_t seal);
/* The peer's bytes, if the key is still good. */
psc_status_t shm_cma_read(shm_ep_t *ep, void *buffer, size_t len,
                          const psc_rkey_t *rkey, uint64_t offset);
/* To an address that the peer has named. */
psc_status_t shm_cma_write(shm_ep_t *ep, const void *buffer, size_t len,
                           uint64_t address);
bool shm_cma_available(void);
/* The trial: read the peer's probe and write it to its echo. */
bool shm_cma_prove(shm_ep_t *ep, const shm_offer_t *offer);
psc_status_t shm_put(psc_ep_t *ep, const void *buffer, size_t len,
                     psc_mem_t *mem, psc_rkey_t *rkey, uint64_t offset,
                     psc_comp_t *comp);
psc_status_t shm_get(psc_ep_t *ep, void *buffer, size_t len, psc_mem_t *mem,
                     psc_rkey_t *rkey, uint64_t offset, psc_comp_t *comp);
psc_status_t shm_mem_register(psc_iface_t *iface, psc_ep_t *ep, void *base,
                              size_t len, psc_mem_t **mem_p);
void shm_mem_deregister(psc_iface_t *iface, psc_mem_t *mem);
psc_status_t shm_mem_revoke(psc_iface_t *iface, psc_mem_t *mem);
void shm_mem_close(shm_iface_t *iface);
psc_status_t shm_rkey_pack(psc_iface_t *iface, psc_mem_t *mem, uint8_t *packed,
                           size_t *len_p);
psc_status_t shm_rkey_unpack(psc_ep_t *ep, const uint8_t *packed, size_t len,
                             psc_rkey_t **rkey_p);
void shm_rkey_release(psc_ep_t *ep, psc_rkey_t *rkey);

/* share.c */
psc_status_t shm_share_start(shm_ep_t *ep, void *buffer, size_t len,
                             const psc_rkey_t *rkey, uint64_t offset,
                             psc_comp_t *comp);
/* The peer asks for help. False: that makes no sense. */
bool shm_share_asked(shm_ep_t *ep, shm_word_t word, const uint8_t *bytes);
/* Copy a piece of a get of ours, and one of the peer's. */
unsigned shm_share_poll(shm_ep_t *ep);
/* Forget the peer's gets; ours have ended, or never will. */
void shm_share_drop(shm_ep_t *ep);
void shm_share_close(shm_iface_t *iface);

/* map.c */
_Static_assert(SHM_ID_SIZE == PSC_SEGMENT_ID_SIZE, "one size of ids");
psc_status_t shm_mem_share(psc_iface_t *iface, void *base, size_t len, int fd,
                           psc_mem_t **mem_p);
psc_status_t shm_rkey_map(psc_ep_t *ep, const uint8_t *packed, size_t len,
                          psc_map_t **map_p);

#endif
