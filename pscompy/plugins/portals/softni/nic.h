/* An NI and its peers. The files of the software NI stand in layers, each of
 * which calls the ones below only:
 *
 *   library     PtlInit, opening NIs of the process, settings
 *   interface   one NI: opening, limits, closing
 *   thread      passes while no caller makes any
 *   api_wait    event queues and counters: polling, waiting
 *   progress    one pass: what is due, one datagram
 *   receive     frames of peers: order, acknowledgements
 *   handshake   how two NIs come to trust each other
 *   api_move    memory descriptors, put and get
 *   life        a peer is made known, comes up, is lost
 *   target      messages of peers
 *   send        frames to peers: window, acknowledgements, resends
 *   frame       frames in the making
 *   hello       frames of the handshake
 *   wire        the socket
 *   peer        peers by their address, and their times
 *   operation   operations of this side, until their last event
 *   api_entry, api_table   list entries, portal table
 *   match       which entry takes a message, and the events of that
 *   entry, table, list   what matching stands on
 *   queue, counter       events
 *   fault_injection      faults for tests
 *   wakeup      descriptors that wake sleepers, timers
 *   pool        objects of an NI, and the handles that name them
 *   region      memory in one piece or in several
 *
 * One lock per NI, taken by every function of the specification while it runs,
 * except while it sleeps. The functions below are called with the lock. */
#ifndef PSNI_NIC_H
#define PSNI_NIC_H

#include "objects.h"
#include "pscompy/transport/kit/reorder.h"

/* ---- peer.c, life.c, hello.c, handshake.c, send.c, receive.c ---- */

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
    bool came;       /* acknowledged before earlier frames */
    int64_t sent_at; /* 0: there was no room in the socket */
} psni_frame_t;

/* A frame that overtook others. */
typedef struct psni_stored {
    size_t length;
    unsigned answers;
    uint8_t bytes[];
} psni_stored_t;

struct psni_peer {
    psni_ni_t *ni;
    psni_peer_t *next; /* in the bucket */
    psc_link_t busy;   /* has a deadline */
    ptl_process_t id;
    struct sockaddr_in address;
    psni_stage_t stage;
    bool itself;   /* this NI: no acknowledgements are needed */
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
    uint64_t cost, window; /* bytes in flight; bytes allowed */
    uint64_t most;         /* bytes that the peer offers */
    uint32_t frame_size;         /* of a frame, without its head */
    int64_t trip, spread; /* of a round trip, and of its variation */
    int64_t deadline;
    unsigned unanswered, refusals;
    bool refused;

    /* In. */
    psc_reorder_t order; /* of psni_stored_t */
    void *held[PSNI_WINDOW]; /* its places */
    uint32_t acked; /* order.expected, when last acknowledged */
    unsigned owed;  /* frames since */
    uint64_t owed_cost;
    int64_t owed_by;
    psni_incoming_t incoming;
};

psni_peer_t *psni_peer_find(psni_ni_t *ni, ptl_process_t id);
psni_peer_t *psni_peer_make(psni_ni_t *ni, ptl_process_t id);
/* Finds a peer, or makes it. */
psni_peer_t *psni_peer_get(psni_ni_t *ni, ptl_process_t id);
/* Returns true if an answer of the peer is missing. */
bool psni_peer_awaited(const psni_peer_t *peer);
/* Ends every operation; a later one begins the handshake anew. */
void psni_peer_lose(psni_peer_t *peer);
void psni_peer_up(psni_peer_t *peer, uint64_t token, uint64_t its_token);
void psni_peers_close(psni_ni_t *ni);
void psni_peer_refused(psni_peer_t *peer);
/* Counts an attempt without an answer. Returns false if that was the last. */
bool psni_peer_bear(psni_peer_t *peer);
/* Nanoseconds until a resend. */
int64_t psni_peer_patience(const psni_peer_t *peer);
/* Sets the timer, depending on what is expected of the peer. */
void psni_peer_expect(psni_peer_t *peer, int64_t now);
void psni_peer_timer(psni_peer_t *peer, int64_t when);
void psni_peers_tick(psni_ni_t *ni, int64_t now);
bool psni_peers_quiet(psni_ni_t *ni); /* nothing is in flight */

/* A hash of the bytes, with a key that only this NI has. */
uint64_t psni_secret(const psni_ni_t *ni, const void *bytes, size_t length);
uint64_t psni_meet_token(psni_ni_t *ni);
void psni_meet_sign(const uint8_t *cookie, ptl_process_t from, ptl_process_t to,
                    const psni_hello_t *hello, uint8_t *proof);
void psni_meet_send(psni_peer_t *peer, uint64_t token, uint64_t echo);
void psni_meet_begin(psni_peer_t *peer);
void psni_meet_again(psni_peer_t *peer, int64_t now); /* the timer */
/* Returns true if a frame with this token proves that the peer received the
 * token. */
bool psni_meet_proves(psni_peer_t *peer, uint64_t token);
void psni_meet_take(psni_ni_t *ni, const struct sockaddr_in *from,
                    const uint8_t *body, size_t length);

void psni_send_queue(psni_op_t *op); /* and sends what the window allows */
void psni_send_pump(psni_peer_t *peer);
/* Queues an ACK, which waits a moment for a message to the same peer. */
void psni_send_answer(psni_op_t *op);
/* Sends all waiting ACKs. */
void psni_send_answers(psni_ni_t *ni);
void psni_send_ack(psni_peer_t *peer, uint8_t flags);
void psni_send_again(psni_peer_t *peer, int64_t now); /* the timer */
/* Handles the acknowledgements in the head of a frame. */
void psni_send_acknowledged(psni_peer_t *peer, const psni_head_t *head);
void psni_send_reset(psni_peer_t *peer);

void psni_arrive(psni_ni_t *ni, const struct sockaddr_in *from,
                 const uint8_t *bytes, size_t length);
void psni_stored_free(psni_peer_t *peer, psni_stored_t *stored);
void psni_arrive_reset(psni_peer_t *peer);

/* ---- wire.c, fault_injection.c ---- */

typedef struct psni_packet {
    struct iovec iov[1 + PSNI_PIECES];
    int n_iov;
    uint8_t
        head[sizeof(psni_head_t) + (PSNI_ANSWERS + 1) * sizeof(psni_message_t)];
} psni_packet_t;

int psni_wire_open(psni_ni_t *ni, ptl_pid_t pid);
void psni_wire_close(psni_ni_t *ni);
/* Returns how many were sent; the socket had no room for the others. */
unsigned psni_wire_send(psni_ni_t *ni, const struct sockaddr_in *to,
                        psni_packet_t *packets, unsigned n);
/* Handles one datagram or one refusal. Returns false if there was none. */
bool psni_wire_poll(psni_ni_t *ni);
ptl_process_t psni_process(const struct sockaddr_in *address);
/* Handles an error of the socket. Returns true if the call is to be repeated.
 */
bool psni_wire_again(psni_ni_t *ni, int error);

typedef struct psni_held { /* a datagram that a fault delays */
    psc_link_t link;
    struct sockaddr_in to;
    int64_t until;
    bool next; /* until the next datagram was sent */
    size_t length;
    uint8_t bytes[];
} psni_held_t;

bool psni_dice(psni_ni_t *ni, unsigned per_million);
/* Sets the field that has this name. Returns PTL_ARG_INVALID if there is none,
 * or if the value is out of its range. */
int psni_settings_set(psni_settings_t *settings, const char *name,
                      uint64_t value);
bool psni_settings_sound(const psni_settings_t *settings);
bool psni_faults_used(const psni_settings_t *settings);
/* Sends a packet, with faults. Returns false if the socket has no room. */
bool psni_faults_send(psni_ni_t *ni, const struct sockaddr_in *to,
                      psni_packet_t *packet);
void psni_faults_tick(psni_ni_t *ni, int64_t now);
void psni_faults_close(psni_ni_t *ni);

/* ---- frame.c ---- */

uint64_t psni_frame_cost(uint64_t length); /* of the receiver's memory */
psni_frame_t *psni_frame_at(psni_peer_t *peer, uint32_t seq);
psni_head_t psni_head_for(psni_peer_t *peer, psni_frame_kind_t kind);
void psni_frame_pack(psni_peer_t *peer, uint32_t seq, psni_packet_t *packet);
/* Makes the next frame. Returns false if there is nothing to send, or if the
 * window has no room. Answers alone make a frame if `flush`. */
bool psni_frame_next(psni_peer_t *peer, int64_t now, bool flush);

/* ---- progress.c, thread.c, wakeup.c ---- */

bool psni_progress(psni_ni_t *ni); /* true: a datagram was handled */
bool psni_progress_pass(psni_ni_t *ni);
void psni_timer(psni_ni_t *ni, int64_t when); /* wake up by then */

typedef struct psni_thread {
    pthread_t id;
    bool running;
    int epoll_fd, wake_fd;
    bool watching;      /* callers poll the socket */
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
    bool faulty; /* some fault of the wire is set */
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
    int64_t deadline; /* the earliest timer */
    ptl_event_t late_event; /* that a fault delays */
    psni_eq_t *late_eq;
    int64_t late_until;

    uint64_t calls; /* progress that callers made */
    unsigned armed; /* armed bells */
    psc_list_t listening;
    unsigned awake; /* passes of callers since a bell was armed */
    unsigned flow;  /* datagrams that callers received since then */
    psni_thread_t thread;
};

/* ---- pool.c: the NIs of the process ---- */

/* Returns NULL if there is no NI at this index. */
psni_ni_t *psni_library_ni(uint32_t index);
void psni_library_place(uint32_t index, psni_ni_t *ni);
/* Returns true between PtlInit and PtlFini. */
bool psni_library_ready(void);
void psni_library_enter(void);
/* Returns true if that was the last user. */
bool psni_library_leave(void);

/* ---- interface.c ---- */

int psni_interface_open(psni_ni_t *ni, ptl_pid_t pid,
                        const ptl_ni_limits_t *desired);
void psni_interface_close(psni_ni_t *ni);

#endif
