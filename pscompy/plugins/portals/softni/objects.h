/* The objects of an NI: what handles name (queues, counters, descriptors,
 * entries), portal table entries, and messages on their way out or in. */
#ifndef PSNI_OBJECTS_H
#define PSNI_OBJECTS_H

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "pscompy/transport/kit/clock.h"
#include "pscompy/transport/kit/list.h"
#include "pscompy/transport/kit/lock.h"
#include "settings.h"
#include "wire.h"

#define PSNI_NIS 8u        /* of one process */
#define PSNI_WINDOW 64u    /* frames in flight to one peer */
#define PSNI_BATCH 16u     /* datagrams handed to the kernel at a time */
#define PSNI_PIECES 64u    /* of a scattered buffer */
#define PSNI_INLINE 256u   /* bytes of a put that are copied at once */
#define PSNI_VOLATILE 8192u
#define PSNI_LEAST_WINDOW 16384u
#define PSNI_PID_MAX 65535u /* a pid is a UDP port */
#define PSNI_TABLES 256u
#define PSNI_BUCKETS 256u
#define PSNI_MILLION 1000000u
#define PSNI_NEVER INT64_MAX

typedef struct psni_ni psni_ni_t;
typedef struct psni_peer psni_peer_t;
typedef struct psni_op psni_op_t;
typedef struct psni_entry psni_entry_t;

/* ---- pool.c: objects and handles ---- */

typedef enum psni_kind {
    PSNI_KIND_NI = 1, /* no handle is 0: headers may mean "none" by that */
    PSNI_KIND_EQ,
    PSNI_KIND_CT,
    PSNI_KIND_MD,
    PSNI_KIND_ENTRY,
    PSNI_KIND_OP,     /* named on the wire, never to the user */
    PSNI_KIND_ANSWER, /* a psni_op_t too, for what a peer asked for */
    PSNI_KINDS
} psni_kind_t;

typedef struct psni_object {
    psni_ni_t *ni;
    struct psni_object *next; /* free ones */
    uint32_t index, generation;
    uint8_t kind;
    bool live;
} psni_object_t;

typedef struct psni_pool {
    psni_ni_t *ni;
    psni_kind_t kind;
    size_t size; /* of an object, which begins with a psni_object_t */
    uint32_t limit, made;
    psni_object_t *free;
    void **chunks;
} psni_pool_t;

int psni_pool_open(psni_pool_t *pool, psni_ni_t *ni, psni_kind_t kind,
                   size_t size, uint32_t limit);
void psni_pool_close(psni_pool_t *pool);
/* Zeroed behind its psni_object_t. Returns NULL if the limit is reached, or if
 * memory is short. */
void *psni_pool_take(psni_pool_t *pool);
void psni_pool_give(psni_pool_t *pool, void *object);
psni_object_t *psni_pool_at(psni_pool_t *pool, uint32_t index);

ptl_handle_any_t psni_handle(const psni_object_t *object);
/* Finds the object that a handle names, and takes the lock of its NI, which
 * psni_leave releases. Returns PTL_NO_INIT or PTL_ARG_INVALID without it. */
int psni_enter(ptl_handle_any_t handle, psni_kind_t kind, void *object_p);
/* Finds the NI of a handle of this kind, even if its object has died, and takes
 * the lock. Returns NULL if there is none. */
psni_ni_t *psni_enter_ni(ptl_handle_any_t handle, psni_kind_t kind);
/* Another object of an NI whose lock is taken, or NULL if there is none. */
void *psni_find(psni_ni_t *ni, ptl_handle_any_t handle, psni_kind_t kind);
void psni_leave(psni_ni_t *ni);

/* ---- region.c ---- */

typedef struct psni_region {
    uint8_t *start;            /* in one piece, or */
    const ptl_iovec_t *pieces; /* n_pieces of them; the user's */
    uint32_t n_pieces;
    uint64_t length; /* bytes */
} psni_region_t;

/* Returns false if there are too many pieces, or if the length overflows. */
bool psni_region_init(psni_region_t *region, void *start, uint64_t length,
                      bool scattered, int max_pieces);
/* Fills `out`; the number of pieces, or -1 if `max` are too few. */
int psni_region_gather(const psni_region_t *region, uint64_t offset,
                       uint64_t length, struct iovec *out, int max);
void psni_region_write(const psni_region_t *region, uint64_t offset,
                       const void *bytes, uint64_t length);
void psni_region_read(const psni_region_t *region, uint64_t offset, void *bytes,
                      uint64_t length);
void *psni_region_at(const psni_region_t *region, uint64_t offset);

/* ---- wakeup.c ---- */

typedef struct psni_bell {
    int epoll_fd, event_fd; /* the former holds the latter */
    psc_link_t listening;   /* NI's bells that hold the socket, too */
    bool open, armed, rung;
} psni_bell_t;

int psni_bell_open(psni_bell_t *bell);
void psni_bell_close(psni_bell_t *bell, psni_ni_t *ni);
void psni_bell_arm(psni_bell_t *bell, psni_ni_t *ni);
void psni_bell_ring(psni_bell_t *bell, psni_ni_t *ni); /* if armed */
/* Counts a pass of a caller; bells stop listening after many. */
void psni_bells_rest(psni_ni_t *ni);

/* ---- queue.c, counter.c, api_wait.c ---- */

typedef struct psni_eq {
    psni_object_t object;
    ptl_event_t *ring;
    uint64_t size;   /* as asked for; the ring has room for more */
    uint64_t spare;  /* how much: for tables that are disabled */
    uint64_t head, tail;
    uint64_t promised; /* to messages that are arriving */
    uint32_t users;    /* tables and descriptors */
    bool dropped;
    psni_bell_t bell;
} psni_eq_t;

typedef struct psni_ct {
    psni_object_t object;
    ptl_ct_event_t value;
    uint32_t users;
    psni_bell_t bell;
} psni_ct_t;

#define PSNI_PASSES 64u /* of progress that one call makes, at most */

void psni_eq_post(psni_eq_t *eq, const ptl_event_t *event);
bool psni_eq_room(const psni_eq_t *eq, unsigned events);
/* Takes the oldest event. Returns PTL_EQ_EMPTY, or PTL_EQ_DROPPED if events
 * before it were lost. */
int psni_eq_take(psni_eq_t *eq, ptl_event_t *event);
void psni_eq_close(psni_eq_t *eq);
void psni_ct_count(psni_ct_t *ct, bool failed, uint64_t amount);
void psni_ct_close(psni_ct_t *ct);
/* How long a blocking call polls, and how long it waits. */
typedef struct psni_patience {
    psni_ni_t *ni;
    int64_t spin_until, deadline;
} psni_patience_t;

psni_patience_t psni_patience(psni_ni_t *ni, ptl_time_t timeout);
bool psni_patience_spin(psni_patience_t *patience);
/* Sleeps on the bells without the lock. PTL_OK, PTL_INTERRUPTED. */
int psni_patience_sleep(psni_patience_t *patience, psni_bell_t *const *bells,
                        unsigned n_bells);
bool psni_patience_over(const psni_patience_t *patience);

/* ---- list.c ---- */

#define PSNI_CLASSES 8u /* different ignore bits with a hash of their own */

typedef struct psni_hash {
    psc_list_t *buckets; /* `size` of them, a power of two; at first: */
    psc_list_t one;
    uint32_t size, used;
} psni_hash_t;

typedef struct psni_class {
    ptl_match_bits_t ignore;
    psni_hash_t hash; /* psni_entry_t, by the other bits */
} psni_class_t;

typedef struct psni_list {
    psc_list_t entries; /* in their order */
    uint64_t places;
    unsigned n_classes;
    psni_class_t classes[PSNI_CLASSES];
} psni_list_t;

typedef struct psni_headers {
    psc_list_t all; /* psni_header_t, in their order */
    ptl_match_bits_t kept;
    psni_hash_t hash; /* by these bits */
} psni_headers_t;

/* ---- table.c, api_table.c, entry.c, match.c ---- */

typedef struct psni_pt {
    bool used, enabled;
    unsigned options;
    uint32_t index;
    psni_eq_t *eq;
    psni_list_t lists[2]; /* by ptl_list_t */
    psni_headers_t unexpected;
    int n_entries[2];
} psni_pt_t;

struct psni_entry {
    psni_object_t object;
    psc_link_t link, bucket; /* of the list; of a hash of its class: */
    psni_class_t *class;
    uint64_t place; /* in the list */
    psni_pt_t *pt;
    ptl_me_t me;
    ptl_list_t list;
    void *user_ptr;
    psni_ct_t *ct;
    psni_region_t region;
    uint64_t filled; /* with PTL_ME_MANAGE_LOCAL */
    uint32_t under_way, headers;
    bool linked, told; /* told: its unlinking was reported */
};

/* Who took an unexpected message, or the entry that did for good. */
typedef struct psni_claim {
    bool made, search;
    unsigned options; /* of the entry that was appended */
    void *user_ptr;
    psni_ct_t *ct;
} psni_claim_t;

/* A message, as events of the target describe it. */
typedef struct psni_arrival {
    psni_verb_t verb;
    ptl_process_t initiator;
    ptl_uid_t uid;
    ptl_match_bits_t match_bits;
    ptl_hdr_data_t hdr_data;
    uint64_t rlength, mlength;
    uint64_t remote_offset, offset; /* as asked for, as in the entry */
    ptl_ni_fail_t fail;
} psni_arrival_t;

typedef struct psni_header {
    psc_link_t link, bucket;
    psni_entry_t *entry; /* of the overflow list */
    psni_arrival_t arrival;
    psni_claim_t claim;
    bool complete;
} psni_header_t;

void psni_list_init(psni_list_t *list);
void psni_list_close(psni_list_t *list);
void psni_list_add(psni_list_t *list, psni_entry_t *entry);
void psni_list_remove(psni_entry_t *entry);
/* The first entry that takes the message, or NULL. */
psni_entry_t *psni_list_find(const psni_list_t *list,
                             const psni_arrival_t *arrival);
void psni_headers_init(psni_headers_t *headers);
void psni_headers_close(psni_headers_t *headers);
void psni_headers_add(psni_headers_t *headers, psni_header_t *header);
void psni_headers_remove(psni_headers_t *headers, psni_header_t *header);
/* The first unexpected message that the entry would have taken, or NULL. */
psni_header_t *psni_header_find(psni_pt_t *pt, const ptl_me_t *me);

psni_pt_t *psni_pt_find(psni_ni_t *ni, ptl_pt_index_t index);
/* Flow control: refuses messages from now on, with an event if `tell`. */
void psni_pt_disable(psni_ni_t *ni, psni_pt_t *pt, bool tell);
void psni_pt_close(psni_ni_t *ni, psni_pt_t *pt);

/* Removes the entry from its list. psni_entry_release frees it after its last
 * event, once nothing is in flight into it. */
void psni_entry_unlink(psni_entry_t *entry);
void psni_entry_free(psni_entry_t *entry);
void psni_entry_tell(const psni_entry_t *entry, ptl_event_kind_t type);
void psni_entry_release(psni_entry_t *entry);
void psni_entry_tell_unlink(psni_pt_t *pt, const psni_claim_t *claim);

/* Looks for an entry that takes the message, and reserves what it needs:
 * entry and header, offset and length. On failure *entry_p is NULL and the
 * reason stands in arrival->fail. */
void psni_match(psni_ni_t *ni, uint32_t pt_index, psni_arrival_t *arrival,
                psni_entry_t **entry_p, psni_header_t **header_p);
/* Ends a message: events, counters, and the end of the entry. */
void psni_match_end(psni_entry_t *entry, psni_header_t *header,
                    const psni_arrival_t *arrival);
void psni_match_post_late(psni_ni_t *ni);
/* The offset of a message in the entry, and the room from there on. */
uint64_t psni_entry_offset(const psni_entry_t *entry,
                           const psni_arrival_t *arrival);
uint64_t psni_entry_room(const psni_entry_t *entry, uint64_t offset);
void psni_header_claim(psni_header_t *header, const psni_claim_t *claim);
void psni_header_drop(psni_header_t *header);
ptl_event_t psni_arrival_event(const psni_arrival_t *arrival,
                               ptl_event_kind_t type, uint32_t pt_index);

/* ---- operation.c ---- */

typedef struct psni_md {
    psni_object_t object;
    ptl_md_t md;
    psni_region_t region;
    psni_eq_t *eq;
    psni_ct_t *ct;
    uint32_t ops;
} psni_md_t;

/* An operation of this side, until its last event. */
struct psni_op {
    psni_object_t object;
    psc_link_t all, queue; /* of the peer */
    psni_peer_t *peer;
    psni_message_t message;
    psni_region_t region;
    uint64_t offset, length; /* in the region; bytes on the wire */
    uint64_t sent;           /* bytes that went into frames */
    uint32_t frames;         /* not acknowledged yet */
    bool begun, done;        /* the first frame was made, the last one */
    bool told;               /* SEND event given, or the bytes copied */
    psni_md_t *md;
    void *user_ptr;
    psni_entry_t *entry; /* of a reply */
    psni_header_t *header;
    psni_arrival_t arrival;
    uint8_t *copy;
    uint8_t bytes[PSNI_INLINE];
};

/* Returns NULL if too many operations of this kind are in flight. */
psni_op_t *psni_op_make(psni_peer_t *peer, psni_kind_t kind, psni_verb_t verb);
/* Frees an operation without an event. */
void psni_op_drop(psni_op_t *op);
void psni_op_tell_send(psni_op_t *op, ptl_ni_fail_t fail);
/* All its frames were acknowledged. */
void psni_op_sent(psni_op_t *op);
/* The target has acknowledged the put, or has sent all of the reply. */
void psni_op_end(psni_op_t *op, const psni_message_t *told);
void psni_op_fail(psni_op_t *op, ptl_ni_fail_t fail);
psni_op_t *psni_op_find(psni_peer_t *peer, uint64_t id, psni_verb_t verb);

/* ---- target.c ---- */

/* A put or a reply of which bytes are missing. */
typedef struct psni_incoming {
    bool active;
    psni_message_t message;
    psni_arrival_t arrival;
    psni_entry_t *entry; /* of a put; NULL: its bytes are thrown away */
    psni_header_t *header;
    psni_op_t *op; /* of a reply */
    uint64_t received;
} psni_incoming_t;

/* Takes the next body in order. Returns false if there is no room for it; the
 * peer sends it again. */
bool psni_target_take(psni_peer_t *peer, unsigned answers, const uint8_t *body,
                      size_t length);
void psni_target_abort(psni_peer_t *peer);

#endif
