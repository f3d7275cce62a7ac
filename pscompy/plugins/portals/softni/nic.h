/* What the files of the software NI share.
 *
 *   library.c   PtlInit, the NIs of the process, settings, the table
 *   interface.c one NI: opening, limits, closing
 *   pool.c      objects of an NI and the handles that name them
 *   queue.c     event queues;  counter.c  counting events
 *   bell.c      descriptors that wake sleepers
 *   table.c     the portal table
 *   entry.c     list entries: append, unlink, search
 *   match.c     who takes a message, and who is told; unexpected headers
 *   list.c      which of many entries, or messages
 *   target.c    messages that come in
 *   initiate.c  memory descriptors, put and get, how they end
 *   region.c    memory in one piece or in several
 *   peer.c      the other NIs, their lives and deaths
 *   meet.c      how two NIs come to trust each other
 *   frame.c     frames in the making
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

#include "objects.h"

/* ---- peer.c, meet.c, send.c, arrive.c ---- */

typedef enum psni_stage {
    PSNI_STAGE_IDLE, /* known, not connected */
    PSNI_STAGE_OPENING,
    PSNI_STAGE_UP
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
    uint8_t cookie[SOFTNI_COOKIE_BYTES];
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
/* Sets the field that has this name. Returns PTL_ARG_INVALID if there is none,
 * or if the value is out of its range. */
int psni_settings_set(psni_settings_t *settings, const char *name,
                      uint64_t value);
bool psni_settings_sound(const psni_settings_t *settings);
bool psni_knobs_used(const psni_settings_t *settings);
/* Takes the place of sending; false: no room in the socket. */
bool psni_knobs_send(psni_ni_t *ni, const struct sockaddr_in *to,
                     psni_packet_t *packet);
void psni_knobs_tick(psni_ni_t *ni, int64_t now);
void psni_knobs_close(psni_ni_t *ni);

/* ---- frame.c ---- */

uint64_t psni_frame_cost(uint64_t length); /* of the receiver's memory */
psni_frame_t *psni_frame_at(psni_peer_t *peer, uint32_t seq);
psni_head_t psni_head_for(psni_peer_t *peer, psni_frame_kind_t kind);
void psni_frame_pack(psni_peer_t *peer, uint32_t seq, psni_packet_t *packet);
/* The next frame, if there is something to send (answers alone: if `flush`)
 * and the window has room for it. */
bool psni_frame_next(psni_peer_t *peer, int64_t now, bool flush);

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
    ptl_ni_limits_t limits;
    psni_counters_t counters;
    ptl_sr_value_t registers[PTL_SR_OPERATION_VIOLATIONS + 1];
    ptl_process_t id;
    ptl_uid_t uid;
    uint8_t cookie[SOFTNI_COOKIE_BYTES];
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
    psc_list_t listening;
    unsigned awake; /* passes of callers since a bell was armed */
    unsigned flow;  /* datagrams that came to callers since then */
    psni_thread_t thread;
};

/* ---- library.c, interface.c ---- */

psni_ni_t *psni_library_ni(uint32_t index); /* NULL: none there */
bool psni_library_ready(void);
int psni_interface_open(psni_ni_t *ni, ptl_pid_t pid,
                        const ptl_ni_limits_t *desired);
void psni_interface_close(psni_ni_t *ni);

#endif
