/* An NI and its peers. The files of the software NI stand in layers, each of
 * which calls the ones below only:
 *
 *   library     PtlInit, opening NIs of the process, settings
 *   interface   one NI: opening, limits, closing
 *   thread      makes progress while no caller does
 *   api_wait    event queues and counters: polling, waiting
 *   progress    one pass: expired timers, then one datagram
 *   receive     frames of peers: order, acknowledgements
 *   handshake   how two NIs come to trust each other
 *   api_move    memory descriptors, put and get
 *   life        how a peer is added, connected and lost
 *   target      messages of peers
 *   send        frames to peers: window, acknowledgements, resends
 *   frame       frames in the making
 *   hello       frames of the handshake
 *   wire        the socket
 *   peer        peers by their address, and their times
 *   operation   puts and gets of this side, until their last event
 *   api_entry, api_table   list entries, portal table
 *   match       finds the entry that takes a message, posts its events
 *   entry, table, list   list entries and tables, as matching uses them
 *   queue, counter       events
 *   fault_injection      faults for tests
 *   wakeup      descriptors that wake sleepers, timers
 *   pool        objects of an NI, and the handles that name them
 *   region      memory in one piece or in several
 *
 * Each NI has one lock. Every function of the specification holds it while it
 * runs, except while it sleeps. The functions below are called by a thread that
 * holds the lock. */
#pragma once

#include "peer.h"

/* ---- wire.c, fault_injection.c ---- */

int psni_wire_open(psni_ni_t *ni, ptl_pid_t pid);
void psni_wire_close(psni_ni_t *ni);
/* Sends packets. Returns the number of packets for which the socket had
 * room. */
unsigned psni_wire_send(psni_ni_t *ni, const struct sockaddr_in *to,
                        psni_packet_t *packets, unsigned n);
/* Sends the first `size` bytes of the head of packets[0], the NI's first
 * packet. */
void psni_wire_send_head(psni_peer_t *peer, size_t size);
/* Handles one datagram, or one error that an earlier datagram caused. Returns
 * false if there was neither. */
bool psni_wire_poll(psni_ni_t *ni);
ptl_process_t psni_process(const struct sockaddr_in *address);
/* Handles the errno of a failed socket call. Returns true if the caller is to
 * repeat the call. */
bool psni_wire_again(psni_ni_t *ni, int error);

typedef struct psni_held { /* a datagram that an injected fault delays */
    psc_link_t link;
    struct sockaddr_in to;
    int64_t until;
    /* the datagram is sent right after the next one, so that the two change
     * their order */
    bool next;
    size_t length;
    uint8_t bytes[];
} psni_held_t;

bool psni_dice(psni_ni_t *ni, unsigned per_million);
/* Sets the field of the settings that has this name. Returns PTL_ARG_INVALID if
 * there is no such field, or if the value is out of its range. */
int psni_settings_set(psni_settings_t *settings, const char *name,
                      uint64_t value);
bool psni_settings_sound(const psni_settings_t *settings);
bool psni_faults_used(const psni_settings_t *settings);
/* Sends a packet, and applies the faults that a test has set. Returns false if
 * the socket has no room. */
bool psni_faults_send(psni_ni_t *ni, const struct sockaddr_in *to,
                      psni_packet_t *packet);
void psni_faults_tick(psni_ni_t *ni, int64_t now);
void psni_faults_close(psni_ni_t *ni);

/* ---- progress.c, thread.c, wakeup.c ---- */

bool psni_progress(psni_ni_t *ni); /* Returns true if a datagram was handled. */
bool psni_progress_pass(psni_ni_t *ni);
/* Makes the NI look at its timers at `when` or earlier. */
void psni_timer(psni_ni_t *ni, int64_t when);

typedef struct psni_thread {
    pthread_t id;
    bool running;
    int epoll_fd, wake_fd;
    /* callers poll the socket, so the thread does not wait for the socket */
    bool watching;
    /* value of ni->calls when the thread last checked whether callers poll */
    uint64_t seen;
    int64_t sleeps_until;
    atomic_bool stop;
} psni_thread_t;

int psni_thread_start(psni_ni_t *ni);
/* to be called without the lock of the NI */
void psni_thread_stop(psni_ni_t *ni);
void psni_thread_wake(psni_ni_t *ni);

/* ---- an NI ---- */

struct psni_ni {
    psni_object_t object; /* object.index: the NI's number in the process */
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
    /* bytes of the socket's receive buffer that frames of peers may fill */
    uint64_t room;
    bool faulty; /* a test has set a fault of the wire (settings.h) */
    psni_packet_t packets[PSNI_BATCH];
    uint8_t datagram[PSNI_FRAME_MAX + 1];
    psc_list_t held; /* psni_held_t: datagrams that an injected fault delays */

    psni_pool_t pools[PSNI_KINDS];
    psni_pt_t tables[PSNI_TABLES];
    int n_headers;
    psni_peer_t *peers[PSNI_BUCKETS];
    uint64_t tokens; /* handshake tokens made so far (handshake.c) */
    /* number of bytes in psni_stored_t: frames that wait for earlier frames */
    uint64_t stored;
    /* list of psni_peer_t for which ACKs of puts wait to be sent */
    psc_list_t answering;
    int64_t answers_by;
    /* progress passes without a datagram since the first peer was added to the
     * empty list `answering` */
    unsigned idle;
    psc_list_t busy;
    int64_t deadline; /* time of the earliest timer of the NI (psni_timer) */
    /* event that the fault `reorder_events` holds back */
    ptl_event_t late_event;
    psni_eq_t *late_eq;
    int64_t late_until;

    /* progress passes made by callers, not by the thread of the NI */
    uint64_t calls;
    unsigned armed; /* number of armed doorbells (see wakeup.c) */
    psc_list_t listening;
    /* progress passes made by callers since a doorbell (see wakeup.c) was armed
     */
    unsigned awake;
    /* datagrams that callers received since a doorbell (see wakeup.c) was armed
     */
    unsigned flow;
    psni_thread_t thread;
};

/* ---- pool.c: the NIs of the process ---- */

/* Returns the NI at this index of the process; NULL if there is none. */
psni_ni_t *psni_library_ni(uint32_t index);
void psni_library_register(uint32_t index, psni_ni_t *ni);
/* Returns true between PtlInit and PtlFini. */
bool psni_library_ready(void);
void psni_library_enter(void);
/* Leaves the library. Returns true if the caller was its last user. */
bool psni_library_leave(void);

/* ---- interface.c ---- */

int psni_interface_open(psni_ni_t *ni, ptl_pid_t pid,
                        const ptl_ni_limits_t *desired);
void psni_interface_close(psni_ni_t *ni);
