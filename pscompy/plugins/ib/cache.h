/* Registrations, which may outlive their message because the same memory is
 * often sent again, and the windows that open them to peers.
 *
 *   cache.c   keeps them, bounded, and finds them again
 *   proof.c   tells whether one still is what it was
 *   window.c  opens some of one to peers, and shuts it again */
#ifndef PSCOMPY_IB_CACHE_H
#define PSCOMPY_IB_CACHE_H

#include "driver.h"
#include "pscompy/transport/kit/list.h"

#define IB_PAGE 4096u

/* One registration. */
struct ib_hold {
    psc_link_t link;  /* in one of the cache's lists */
    psc_list_t users; /* what is under way: psc_mem_t */
    struct ibv_mr *mr;
    uint8_t *base;
    size_t len;
    bool remote;      /* peers may use its key; else they need a window */
    bool given_up;    /* nobody finds it any more */
    bool used;        /* since the last sweep */
    uint64_t *frames; /* of its pages, as they were; see proof.c */
    /* The window: what it shows, for how many users, and requests that bind
     * it, all of one queue. */
    struct ibv_mw *window;
    uint64_t shown, shown_len;
    uint32_t exposures, bindings;
    const ib_queue_t *queue;
    bool spoilt; /* a request failed: nobody knows what it shows */
};

typedef struct ib_cache {
    psc_list_t holds; /* longest unused first */
    psc_list_t regions; /* what somebody registered, and will deregister */
    psc_list_t given_up; /* until nobody uses it */
    struct ibv_pd *pd;
    bool windows; /* the device has them */
    int proof; /* -1: nothing can be proved, nothing is kept */
    uint32_t n, n_max;
    uint64_t bytes, bytes_max;
    uint64_t registered, found, stale, not_kept; /* counts */
} ib_cache_t;

void ib_cache_open(ib_cache_t *cache, ib_device_t *device, uint32_t n_max,
                   uint64_t bytes_max);
/* When all endpoints are gone. */
void ib_cache_close(ib_cache_t *cache);
/* A registration that covers this memory and that nobody's key opens, known
 * already or to be kept; NULL: there is none. */
ib_hold_t *ib_cache_get(ib_cache_t *cache, const uint8_t *base, size_t len);
/* A fresh one whose key peers may use. region: to be found by get until it is
 * given up, else by nobody. NULL: errno. */
ib_hold_t *ib_cache_register(ib_cache_t *cache, uint8_t *base, size_t len,
                             bool region);
void ib_cache_give_up(ib_cache_t *cache, ib_hold_t *hold);
/* Somebody has let go of it. */
void ib_cache_settle(ib_hold_t *hold);
/* Now and then: give up what was not used since the last time. */
void ib_cache_sweep(ib_cache_t *cache);

/* ---- proof.c ---- */

/* -1: nothing can be proved here. */
int ib_proof_open(void);
/* Of whole pages, which are pinned. False: it cannot be had. */
bool ib_proof_take(int proof, const uint8_t *base, size_t len,
                   uint64_t *frames);
bool ib_proof_holds(int proof, const uint8_t *base, size_t len,
                    const uint64_t *frames);

/* ---- window.c ---- */

/* Show these bytes to peers, for one more user. The request leaves by this
 * queue, and what is sent there afterwards finds the window open. False: not
 * now. */
bool ib_window_open(ib_cache_t *cache, ib_hold_t *hold, ib_queue_t *queue,
                    uint64_t address, uint64_t len);
void ib_window_close(ib_hold_t *hold, ib_queue_t *queue);
/* The same at once, for one of its users: the window goes, unless a request of
 * its own is in flight, with which it goes then (`spoilt`). */
void ib_window_revoke(ib_hold_t *hold);
/* A request of the window's has ended. */
void ib_window_told(ib_hold_t *hold, bool good);

#endif
