/* Registrations, and the memory windows that give peers access to them. A
 * registration may outlive its message, because the same memory is often sent
 * again.
 *
 *   cache.c   keeps a bounded number of registrations and finds them again
 *   proof.c   checks whether the memory of a registration is still mapped
 *   window.c  opens a part of a registration to peers, and closes it again */
#pragma once

#include "driver.h"
#include "pscompy/transport/kit/list.h"

#define IB_PAGE 4096u

/* Bytes that a psc_mem_t uses of a registration. */
typedef struct ib_user {
    psc_link_t link; /* in the registration's users */
    uint64_t address, len;
} ib_user_t;

/* One registration. */
struct ib_reg {
    psc_link_t link;  /* in one of the cache's lists */
    psc_list_t users; /* of ib_user_t */
    struct ibv_mr *mr;
    uint8_t *base;
    size_t len;
    /* ib_cache_get() no longer finds it; freed when it is idle */
    bool given_up;
    bool used;        /* the registration was used since the last sweep */
    /* Page frames of the memory when it was registered; see proof.c. */
    uint64_t *frames;
    /* The window: the bytes that peers can access through it, the number of
     * psc_mem_t that rely on it, and the bind requests in flight, all on one
     * queue. */
    struct ibv_mw *window;
    uint64_t shown, shown_len;
    uint32_t exposures, bindings;
    const ib_queue_t *queue;
    /* A bind request failed, so the range of the window is unknown. */
    bool invalid;
};

typedef struct ib_cache {
    psc_list_t regs; /* least recently used first */
    /* registrations for all peers; deregistered by their user */
    psc_list_t regions;
    psc_list_t given_up; /* freed when no psc_mem_t uses them */
    struct ibv_pd *pd;
    bool windows; /* the device supports memory windows */
    /* /proc/self/pagemap; -1 if frames cannot be read, then nothing is kept */
    int proof;
    uint32_t n, n_max;
    uint64_t bytes, bytes_max;
    uint64_t registered, found, stale, not_kept; /* counters for the log */
} ib_cache_t;

void ib_cache_open(ib_cache_t *cache, ib_device_t *device, uint32_t n_max,
                   uint64_t bytes_max);
/* Called after all endpoints have been freed. */
void ib_cache_close(ib_cache_t *cache);
/* Returns a registration that covers this memory and that only windows open to
 * peers: a kept one, or a new one that is kept from now on. Returns NULL if
 * there is neither. */
ib_reg_t *ib_cache_get(ib_cache_t *cache, const uint8_t *base, size_t len);
/* Makes a new registration whose key peers may use. If `region` is set,
 * ib_cache_get() finds it until it is given up. Returns NULL and sets errno on
 * failure. */
ib_reg_t *ib_cache_register(ib_cache_t *cache, uint8_t *base, size_t len,
                            bool region);
void ib_cache_give_up(ib_cache_t *cache, ib_reg_t *reg);
/* Called when a user or a bind request of the registration has ended: frees the
 * registration if it is given up and idle. */
void ib_cache_settle(ib_reg_t *reg);
/* Gives up the registrations that were not used since the last sweep. */
void ib_cache_sweep(ib_cache_t *cache);

/* ---- proof.c ---- */

/* Returns -1 if page frames cannot be read on this system. */
int ib_proof_open(void);
/* Reads the frames of whole pages, which must be pinned. Returns false if they
 * cannot be read. */
bool ib_proof_take(int proof, const uint8_t *base, size_t len,
                   uint64_t *frames);
bool ib_proof_holds(int proof, const uint8_t *base, size_t len,
                    const uint64_t *frames);

/* ---- window.c ---- */

/* Opens these bytes to peers for one more user. The bind request is posted to
 * `queue`; requests that are posted to it later find the window open. Returns
 * false if this is not possible now. */
bool ib_window_open(ib_cache_t *cache, ib_reg_t *reg, ib_queue_t *queue,
                    uint64_t address, uint64_t len);
void ib_window_close(ib_reg_t *reg, ib_queue_t *queue);
/* Closes the window at once for one of its users. The window is freed now, or,
 * if one of its bind requests is in flight, when that request completes
 * (`invalid`). */
void ib_window_revoke(ib_reg_t *reg);
/* Called when a bind request of the registration's window has completed. May
 * free the registration. */
void ib_window_bound(ib_reg_t *reg, bool good);
