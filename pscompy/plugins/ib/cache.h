/* Memory registrations, and the memory windows that give peers access to them.
 * A registration may be kept after its message, because the same memory is
 * often sent again.
 *
 *   cache.c   keeps a bounded number of registrations and finds them again
 *   proof.c   checks whether the memory of a registration is still mapped
 *   window.c  opens a part of a registration to peers, and closes it again */
#pragma once

#include "driver.h"
#include "pscompy/transport/kit/list.h"

#define IB_PAGE 4096u

/* The part of a registration that one psc_mem_t (a memory handle of the
 * transport) uses. */
typedef struct ib_user {
    psc_link_t link; /* link in the list `users` of the registration */
    uint64_t address, len;
} ib_user_t;

/* One registered block of memory. */
struct ib_reg {
    /* the list is `regs`, `regions` or `given_up` of ib_cache_t */
    psc_link_t link;
    /* list of ib_user_t: the psc_mem_t that use the registration */
    psc_list_t users;
    struct ibv_mr *mr;
    uint8_t *base;
    size_t len;
    /* ib_cache_get() no longer finds the registration; it is freed when no
     * psc_mem_t and no bind request uses it */
    bool given_up;
    bool used; /* the registration was used since the last ib_cache_sweep() */
    /* Numbers of the page frames of the memory when it was registered
     * (proof.c). */
    uint64_t *frames;
    /* The memory window of the registration. shown, shown_len: the bytes that
     * peers can access through it. exposures: the number of psc_mem_t that rely
     * on the window. bindings: the requests in flight that bind the window, all
     * of them in `queue`. */
    struct ibv_mw *window;
    uint64_t shown, shown_len;
    uint32_t exposures, bindings;
    const ib_queue_t *queue;
    /* A request to bind the window has failed, so it is unknown which bytes the
     * window shows. */
    bool invalid;
};

typedef struct ib_cache {
    psc_list_t regs; /* kept registrations, least recently used first */
    /* registrations whose key any peer may use; the user that made such a
     * registration deregisters it */
    psc_list_t regions;
    /* registrations to be freed when no psc_mem_t and no bind request uses
     * them */
    psc_list_t given_up;
    struct ibv_pd *pd;
    bool windows; /* the device supports memory windows */
    /* descriptor of /proc/self/pagemap; -1 if page frames cannot be read, or
     * say nothing about the time after a fork (ib_device_t.forks), so that no
     * registration is kept */
    int proof;
    uint32_t n, n_max;
    uint64_t bytes, bytes_max;
    /* counters for the log: registrations that were made, found again, found
     * with other pages, and not kept */
    uint64_t registered, found, stale, not_kept;
} ib_cache_t;

void ib_cache_open(ib_cache_t *cache, ib_device_t *device, uint32_t n_max,
                   uint64_t bytes_max);
/* Frees the cache. Called after all endpoints have been freed. */
void ib_cache_close(ib_cache_t *cache);
/* Returns a registration that covers the `len` bytes at `base`: a kept one, or
 * a new one that is kept from now on. The caller gives peers access to it
 * through a window only. Returns NULL if no kept registration fits and a new
 * one cannot be kept. */
ib_reg_t *ib_cache_get(ib_cache_t *cache, const uint8_t *base, size_t len);
/* Makes a new registration whose key any peer may use. If `region` is set,
 * ib_cache_get() finds the registration until it is given up. Returns NULL and
 * sets errno on failure. */
ib_reg_t *ib_cache_register(ib_cache_t *cache, uint8_t *base, size_t len,
                            bool region);
void ib_cache_give_up(ib_cache_t *cache, ib_reg_t *reg);
/* Called when a psc_mem_t stops using the registration, or a bind request of it
 * has completed: frees the registration if it is given up and nothing uses it
 * any more. */
void ib_cache_settle(ib_reg_t *reg);
/* Gives up the registrations that were not used since the last call of this
 * function. */
void ib_cache_sweep(ib_cache_t *cache);

/* ---- proof.c ---- */

/* Opens /proc/self/pagemap. Returns -1 if page frames cannot be read on this
 * system. */
int ib_proof_open(void);
/* Reads the numbers of the page frames of the whole pages in the `len` bytes at
 * `base`, which must be pinned. Returns false if the numbers cannot be read. */
bool ib_proof_take(int proof, const uint8_t *base, size_t len,
                   uint64_t *frames);
bool ib_proof_holds(int proof, const uint8_t *base, size_t len,
                    const uint64_t *frames);

/* ---- window.c ---- */

/* Opens the `len` bytes at `base` to peers through the registration's window,
 * on behalf of one more psc_mem_t. The request that binds the window is posted
 * to `queue`; requests that are posted to `queue` later find the window open.
 * Returns false if the window cannot show these bytes now. */
bool ib_window_open(ib_cache_t *cache, ib_reg_t *reg, ib_queue_t *queue,
                    uint64_t address, uint64_t len);
void ib_window_close(ib_reg_t *reg, ib_queue_t *queue);
/* Ends the use of the window by one psc_mem_t. If it was the last one, the
 * window is destroyed, without a request: at once, or, if a bind request is in
 * flight, when this request completes (`invalid` is set until then). */
void ib_window_revoke(ib_reg_t *reg);
/* Called when a request that binds the registration's window has completed;
 * `good` says whether it succeeded. May free the registration. */
void ib_window_bound(ib_reg_t *reg, bool good);
