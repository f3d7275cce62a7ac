/* What the files of the software NI share.
 *
 *   library.c   PtlInit, the NIs of the process, settings, the table
 *   interface.c one NI: opening, limits, closing
 *   pool.c      objects of an NI and the handles that name them
 *   queue.c     event queues;  counter.c  counting events
 *   bell.c      descriptors that wake sleepers
 *   table.c     the portal table
 *   entry.c     list entries: append, unlink, search
 *   match.c     which entry takes a message; unexpected headers
 *   target.c    messages that come in
 *   initiate.c  memory descriptors, put and get, how they end
 *   region.c    memory in one piece or in several
 *   peer.c      the other NIs, their lives and deaths
 *   meet.c      how two NIs come to trust each other
 *   send.c      frames on their way out: window, acknowledgements, resends
 *   arrive.c    frames that come in: order, acknowledgements
 *   wire.c      the socket;  knobs.c  what breaks it on purpose
 *   progress.c  one pass over the above;  thread.c  passes while nobody calls
 *
 * One lock per NI, taken by every function of the interface for as long as it
 * runs, but not while it sleeps. What is said of a function below holds with
 * the lock taken. */
#ifndef PSNI_NIC_H
#define PSNI_NIC_H

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "pscompy/core/parts/clock.h"
#include "pscompy/core/parts/list.h"
#include "pscompy/core/parts/lock.h"
#include "software.h"
#include "wire.h"

#define PSNI_NIS 8u        /* of one process */
#define PSNI_WINDOW 64u    /* frames under way to one peer */
#define PSNI_BATCH 16u     /* datagrams handed to the kernel at a time */
#define PSNI_PIECES 64u    /* of a scattered buffer */
#define PSNI_INLINE 256u   /* bytes of a put that are copied at once */
#define PSNI_VOLATILE 8192u
#define PSNI_LEAST_WINDOW 16384u
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
    PSNI_KIND_NI,
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
/* Zeroed behind the object; NULL: the limit is reached, or no memory. */
void *psni_pool_take(psni_pool_t *pool);
void psni_pool_give(psni_pool_t *pool, void *object);
psni_object_t *psni_pool_at(psni_pool_t *pool, uint32_t index);

ptl_handle_any_t psni_handle(const psni_object_t *object);
/* The object that a handle names; PTL_NO_INIT, PTL_ARG_INVALID. Takes the
 * lock of its NI, which psni_leave gives back. */
int psni_enter(ptl_handle_any_t handle, psni_kind_t kind, void *object_p);
/* Another object of an NI that was entered; NULL if it is none. */
void *psni_find(psni_ni_t *ni, ptl_handle_any_t handle, psni_kind_t kind);
void psni_leave(psni_ni_t *ni);

/* ---- region.c ---- */

typedef struct psni_region {
    uint8_t *start;            /* in one piece, or */
    const ptl_iovec_t *pieces; /* n_pieces of them; the user's */
    uint32_t n_pieces;
    uint64_t length; /* bytes */
} psni_region_t;

/* False: too many pieces, or a length that overflows. */
bool psni_region_init(psni_region_t *region, void *start, uint64_t length,
                      bool scattered, int max_pieces);
/* Fills `out`; the number of pieces, or -1 if `max` are too few. */
int psni_region_gather(const psni_region_t *region, uint64_t offset,
                       uint64_t length, struct iovec *out, int max);
void psni_region_write(const psni_region_t *region, uint64_t offset,
                       const void *bytes, uint64_t length);
void psni_region_read(const psni_region_t *region, uint64_t offset,
                      void *bytes, uint64_t length);
void *psni_region_at(const psni_region_t *region, uint64_t offset);

/* ---- bell.c ---- */

typedef struct psni_bell {
    int epoll_fd, event_fd; /* the former holds the latter and the socket */
    bool open, armed, rung;
} psni_bell_t;

int psni_bell_open(psni_bell_t *bell, psni_ni_t *ni);
void psni_bell_close(psni_bell_t *bell, psni_ni_t *ni);
void psni_bell_arm(psni_bell_t *bell, psni_ni_t *ni);
void psni_bell_ring(psni_bell_t *bell, psni_ni_t *ni); /* if armed */

/* ---- queue.c, counter.c ---- */

typedef struct psni_eq {
    psni_object_t object;
    ptl_event_t *ring;
    uint64_t size;   /* as asked for; the ring has room for more */
    uint64_t spare;  /* how much: for tables that are disabled */
    uint64_t head, tail;
    uint64_t promised; /* to messages that are coming in */
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
void psni_eq_close(psni_eq_t *eq);
void psni_ct_count(psni_ct_t *ct, bool failed, uint64_t amount);
void psni_ct_close(psni_ct_t *ct);
/* One pass or one sleep of a blocking call; false: the deadline is over. */
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

/* ---- table.c, entry.c, match.c ---- */

typedef struct psni_pt {
    bool used, enabled;
    unsigned options;
    uint32_t index;
    psni_eq_t *eq;
    psc_list_t lists[2];   /* by ptl_list_t */
    psc_list_t unexpected; /* psni_header_t */
    int n_entries[2];
} psni_pt_t;

struct psni_entry {
    psni_object_t object;
    psc_link_t link;
    psni_pt_t *pt;
    ptl_me_t me;
    ptl_list_t list;
    void *user_ptr;
    psni_ct_t *ct;
    psni_region_t region;
    uint64_t filled; /* with PTL_ME_MANAGE_LOCAL */
    uint32_t under_way, headers;
    bool linked, told; /* told: that it is out of the list */
};

/* Who took an unexpected message, or the entry that did for good. */
typedef struct psni_claim {
    bool made, search;
    unsigned options; /* of the entry that was appended */
    void *user_ptr;
    psni_ct_t *ct;
} psni_claim_t;

/* A message as the target's events tell of it. */
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
    psc_link_t link;
    psni_entry_t *entry; /* of the overflow list */
    psni_arrival_t arrival;
    psni_claim_t claim;
    bool complete;
} psni_header_t;

psni_pt_t *psni_pt_find(psni_ni_t *ni, ptl_pt_index_t index);
/* Flow control: messages are refused from now on. */
void psni_pt_disable(psni_ni_t *ni, psni_pt_t *pt, bool tell);
void psni_pt_close(psni_ni_t *ni, psni_pt_t *pt);

/* The entry is out of its list; its last events follow once nothing is under
 * way, and then it is gone. */
void psni_entry_unlink(psni_entry_t *entry);
void psni_entry_release(psni_entry_t *entry);
void psni_entry_tell_unlink(psni_pt_t *pt, const psni_claim_t *claim);

/* Looks for an entry that takes the message, and reserves what it needs:
 * entry and header, offset and length. On failure *entry_p is NULL and the
 * reason stands in arrival->fail. */
void psni_match(psni_ni_t *ni, uint32_t pt_index, psni_arrival_t *arrival,
                psni_entry_t **entry_p, psni_header_t **header_p);
/* The message has ended: events, counters, what becomes of the entry. */
void psni_match_end(psni_entry_t *entry, psni_header_t *header,
                    const psni_arrival_t *arrival);
void psni_match_post_late(psni_ni_t *ni);
/* The first unexpected message that the entry would have taken, or NULL. */
psni_header_t *psni_header_find(psni_pt_t *pt, const ptl_me_t *me);
void psni_header_claim(psni_header_t *header, const psni_claim_t *claim);
void psni_header_drop(psni_header_t *header);
ptl_event_t psni_arrival_event(const psni_arrival_t *arrival,
                               ptl_event_kind_t type, uint32_t pt_index);

/* ---- initiate.c: operations ---- */

typedef struct psni_md {
    psni_object_t object;
    ptl_md_t md;
    psni_region_t region;
    psni_eq_t *eq;
    psni_ct_t *ct;
    uint32_t ops;
} psni_md_t;

/* A message on its way out, until nothing more is expected of it. */
struct psni_op {
    psni_object_t object;
    psc_link_t all, queue; /* of the peer */
    psni_peer_t *peer;
    psni_message_t message;
    psni_region_t region;
    uint64_t offset, length; /* in the region; what travels */
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

/* NULL: too many of this kind are under way. */
psni_op_t *psni_op_make(psni_peer_t *peer, psni_kind_t kind, psni_verb_t verb);
/* All its frames were acknowledged. */
void psni_op_sent(psni_op_t *op);
/* The target told how the put ended, or sent all of the reply. */
void psni_op_end(psni_op_t *op, const psni_message_t *told);
void psni_op_fail(psni_op_t *op, ptl_ni_fail_t fail);
psni_op_t *psni_op_find(psni_peer_t *peer, uint64_t id, psni_verb_t verb);

/* ---- target.c ---- */

/* A put or a reply that has not come in whole. */
typedef struct psni_incoming {
    bool active;
    psni_message_t message;
    psni_arrival_t arrival;
    psni_entry_t *entry; /* of a put; NULL: its bytes are thrown away */
    psni_header_t *header;
    psni_op_t *op; /* of a reply */
    uint64_t received;
} psni_incoming_t;

/* The next body in order. False: no room for it now, send it again. */
bool psni_target_take(psni_peer_t *peer, unsigned answers, const uint8_t *body,
                      size_t length);
void psni_target_abort(psni_peer_t *peer);

/* ---- peer.c, meet.c, send.c, arrive.c ---- */

typedef enum psni_stage {
    PSNI_STAGE_IDLE, /* known, not connected */
    PSNI_STAGE_OPENING,
    PSNI_STAGE_UP,
    PSNI_STAGES
} psni_stage_t;

typedef struct psni_frame {
    psni_op_t *op; /* NULL: answers alone */
    psni_op_t *answers[PSNI_ANSWERS];
    unsigned n_answers;
    uint64_t offset; /* in the message */
    uint32_t length;
    bool first, last, resent;
    bool came;       /* acknowledged out of order */
    int64_t sent_at; /* 0: there was no room in the socket */
} psni_frame_t;

typedef struct psni_stored {
    uint8_t *bytes; /* NULL: has not come */
    size_t length;
    unsigned answers;
} psni_stored_t;

struct psni_peer {
    psni_ni_t *ni;
    psni_peer_t *next; /* in the bucket */
    psc_link_t busy;   /* has a deadline */
    ptl_process_t id;
    struct sockaddr_in address;
    psni_stage_t stage;
    bool itself;   /* ours: what it receives needs no frame to say so */
    bool admitted; /* its cookie is known */
    uint8_t cookie[PSPTL_COOKIE_BYTES];
    uint64_t token, its_token;     /* 0: not known */
    uint64_t next_token, its_next; /* offered to its successor; 0: none */
    ptl_uid_t uid;

    /* Out. */
    psc_list_t ops, queue;
    psc_list_t answers;   /* ACKs that wait for a message to go with */
    psc_link_t answering; /* there are some */
    unsigned n_answers;
    psni_frame_t frames[PSNI_WINDOW];
    uint32_t oldest, next_seq;
    uint64_t cost, window, most; /* bytes under way; allowed; its offer */
    uint32_t frame_size;         /* of a frame, without its head */
    int64_t trip, spread; /* of a round trip, and of its variation */
    int64_t deadline;
    unsigned unanswered, refusals;
    bool refused;

    /* In. */
    uint32_t expected;
    uint64_t came; /* bit i: expected + 1 + i is stored */
    psni_stored_t stored[PSNI_WINDOW];
    uint32_t acked; /* what `expected` was when we last told it */
    unsigned owed;  /* frames since */
    uint64_t owed_cost;
    int64_t owed_by;
    psni_incoming_t incoming;
};

psni_peer_t *psni_peer_find(psni_ni_t *ni, ptl_process_t id);
psni_peer_t *psni_peer_get(psni_ni_t *ni, ptl_process_t id); /* or make it */
/* It is gone: every operation ends; a later one tries to meet it anew. */
void psni_peer_lose(psni_peer_t *peer);
void psni_peer_up(psni_peer_t *peer, uint64_t token, uint64_t its_token);
void psni_peers_close(psni_ni_t *ni);
void psni_peer_refused(psni_peer_t *peer);
/* One more time without an answer; false: that was the last. */
bool psni_peer_bear(psni_peer_t *peer);
int64_t psni_peer_patience(const psni_peer_t *peer); /* until a resend */
/* Something is expected of it (or nothing more): look at it in time. */
void psni_peer_expect(psni_peer_t *peer, int64_t now);
void psni_peer_timer(psni_peer_t *peer, int64_t when);
void psni_peers_tick(psni_ni_t *ni, int64_t now);
bool psni_peers_quiet(psni_ni_t *ni); /* nothing is under way */

/* A keyed hash of the bytes, whose key nobody else has. */
uint64_t psni_secret(const psni_ni_t *ni, const void *bytes, size_t length);
void psni_meet_begin(psni_peer_t *peer);
void psni_meet_again(psni_peer_t *peer, int64_t now); /* the timer */
/* Does a frame with this token prove that the peer has heard us? */
bool psni_meet_proves(psni_peer_t *peer, uint64_t token);
void psni_meet_take(psni_ni_t *ni, const struct sockaddr_in *from,
                    const uint8_t *body, size_t length);

void psni_send_queue(psni_op_t *op); /* and what the window lets out */
void psni_send_pump(psni_peer_t *peer);
/* ACKs wait a moment for a message that goes the same way; all leave now. */
void psni_send_answer(psni_op_t *op);
void psni_send_answers(psni_ni_t *ni);
void psni_send_ack(psni_peer_t *peer, uint8_t flags);
void psni_send_again(psni_peer_t *peer, int64_t now); /* the timer */
uint64_t psni_frame_cost(uint64_t length); /* of the receiver's memory */
/* What the head of a frame says of ours. */
void psni_send_acknowledged(psni_peer_t *peer, const psni_head_t *head);
void psni_send_reset(psni_peer_t *peer);

void psni_arrive(psni_ni_t *ni, const struct sockaddr_in *from,
                 const uint8_t *bytes, size_t length);
void psni_arrive_reset(psni_peer_t *peer);

/* ---- wire.c, knobs.c ---- */

typedef struct psni_packet {
    struct iovec iov[1 + PSNI_PIECES];
    int n_iov;
    uint8_t head[sizeof(psni_head_t) +
                 (PSNI_ANSWERS + 1) * sizeof(psni_message_t)];
} psni_packet_t;

int psni_wire_open(psni_ni_t *ni, ptl_pid_t pid);
void psni_wire_close(psni_ni_t *ni);
/* How many went out; the rest found no room in the socket. */
unsigned psni_wire_send(psni_ni_t *ni, const struct sockaddr_in *to,
                        psni_packet_t *packets, unsigned n);
/* One datagram or one refusal is handled; false: there was none. */
bool psni_wire_poll(psni_ni_t *ni);
ptl_process_t psni_process(const struct sockaddr_in *address);
uint32_t psni_wire_mtu(const struct sockaddr_in *to); /* payload of UDP */

typedef struct psni_held { /* a datagram that knobs hold back */
    psc_link_t link;
    struct sockaddr_in to;
    int64_t until;
    bool next; /* until the next datagram has gone */
    size_t length;
    uint8_t bytes[];
} psni_held_t;

bool psni_dice(psni_ni_t *ni, unsigned per_million);
bool psni_knobs_used(const psni_settings_t *settings);
/* Takes the place of sending; false: no room in the socket. */
bool psni_knobs_send(psni_ni_t *ni, const struct sockaddr_in *to,
                     psni_packet_t *packet);
void psni_knobs_tick(psni_ni_t *ni, int64_t now);
void psni_knobs_close(psni_ni_t *ni);

/* ---- progress.c, thread.c ---- */

bool psni_progress(psni_ni_t *ni); /* true: something happened */
bool psni_progress_pass(psni_ni_t *ni);
void psni_timer(psni_ni_t *ni, int64_t when); /* wake up by then */

typedef struct psni_thread {
    pthread_t id;
    bool running;
    int epoll_fd, wake_fd;
    bool watching;      /* the callers', not the socket */
    uint64_t seen;      /* of ni->calls */
    int64_t sleeps_until;
    atomic_bool stop;
} psni_thread_t;

int psni_thread_start(psni_ni_t *ni);
void psni_thread_stop(psni_ni_t *ni); /* without the lock */
void psni_thread_wake(psni_ni_t *ni);

/* ---- an NI ---- */

struct psni_ni {
    psni_object_t object; /* index: its place in the process */
    psc_lock_t lock;
    ptl_interface_t iface;
    unsigned options, users;
    psni_settings_t settings;
    char address[INET_ADDRSTRLEN]; /* "": the default */
    ptl_ni_limits_t limits;
    psni_counters_t counters;
    ptl_sr_value_t registers[PTL_SR_OPERATION_VIOLATIONS + 1];
    ptl_process_t id;
    ptl_uid_t uid;
    uint8_t cookie[PSPTL_COOKIE_BYTES];
    uint8_t secret[PSC_SIPHASH_KEY_SIZE];
    uint64_t dice;

    int socket;
    uint64_t room; /* bytes that the socket can hold */
    bool knobs;
    psni_packet_t packets[PSNI_BATCH];
    uint8_t datagram[PSNI_FRAME_MAX + 1];
    psc_list_t held; /* psni_held_t */

    psni_pool_t pools[PSNI_KINDS];
    psni_pt_t tables[PSNI_TABLES];
    int n_headers;
    psni_peer_t *peers[PSNI_BUCKETS];
    uint64_t tokens; /* made so far */
    uint64_t stored; /* bytes of frames that overtook others */
    psc_list_t answering; /* peers that have answers waiting */
    int64_t answers_by;
    unsigned idle; /* passes without a datagram since there are */
    psc_list_t busy;
    int64_t deadline; /* no timer ends earlier */
    ptl_event_t late_event; /* that a knob holds back */
    psni_eq_t *late_eq;
    int64_t late_until;

    uint64_t calls; /* progress that callers made */
    unsigned armed; /* bells */
    psni_thread_t thread;
};

/* ---- library.c, interface.c ---- */

psni_ni_t *psni_library_ni(uint32_t index); /* NULL: none there */
bool psni_library_ready(void);
int psni_interface_open(psni_ni_t *ni, ptl_pid_t pid,
                        const ptl_ni_limits_t *desired);
void psni_interface_close(psni_ni_t *ni);

/* The functions of the specification, as the table names them. */
#define PSNI_DECLARE(ours, theirs) __typeof__(theirs) ours
PSNI_DECLARE(psni_ni_init, PtlNIInit);
PSNI_DECLARE(psni_ni_fini, PtlNIFini);
PSNI_DECLARE(psni_ni_status, PtlNIStatus);
PSNI_DECLARE(psni_ni_handle, PtlNIHandle);
PSNI_DECLARE(psni_handle_is_equal, PtlHandleIsEqual);
PSNI_DECLARE(psni_get_uid, PtlGetUid);
PSNI_DECLARE(psni_get_id, PtlGetId);
PSNI_DECLARE(psni_pt_alloc, PtlPTAlloc);
PSNI_DECLARE(psni_pt_free, PtlPTFree);
PSNI_DECLARE(psni_pt_user_disable, PtlPTDisable);
PSNI_DECLARE(psni_pt_user_enable, PtlPTEnable);
PSNI_DECLARE(psni_eq_alloc, PtlEQAlloc);
PSNI_DECLARE(psni_eq_free, PtlEQFree);
PSNI_DECLARE(psni_eq_get, PtlEQGet);
PSNI_DECLARE(psni_eq_wait, PtlEQWait);
PSNI_DECLARE(psni_eq_poll, PtlEQPoll);
PSNI_DECLARE(psni_ct_alloc, PtlCTAlloc);
PSNI_DECLARE(psni_ct_free, PtlCTFree);
PSNI_DECLARE(psni_ct_get, PtlCTGet);
PSNI_DECLARE(psni_ct_wait, PtlCTWait);
PSNI_DECLARE(psni_ct_poll, PtlCTPoll);
PSNI_DECLARE(psni_ct_set, PtlCTSet);
PSNI_DECLARE(psni_ct_inc, PtlCTInc);
PSNI_DECLARE(psni_md_bind, PtlMDBind);
PSNI_DECLARE(psni_md_release, PtlMDRelease);
PSNI_DECLARE(psni_le_append, PtlLEAppend);
PSNI_DECLARE(psni_le_unlink, PtlLEUnlink);
PSNI_DECLARE(psni_le_search, PtlLESearch);
PSNI_DECLARE(psni_me_append, PtlMEAppend);
PSNI_DECLARE(psni_me_unlink, PtlMEUnlink);
PSNI_DECLARE(psni_me_search, PtlMESearch);
PSNI_DECLARE(psni_put, PtlPut);
PSNI_DECLARE(psni_get, PtlGet);
int psni_eq_fd(ptl_handle_eq_t eq_handle, int *fd);
int psni_eq_arm(ptl_handle_eq_t eq_handle);
int psni_ni_cookie(ptl_handle_ni_t ni_handle,
                   uint8_t cookie[PSPTL_COOKIE_BYTES]);
int psni_ni_admit(ptl_handle_ni_t ni_handle, ptl_process_t peer,
                  const uint8_t cookie[PSPTL_COOKIE_BYTES]);

#endif
