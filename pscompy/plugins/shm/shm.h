/* The declarations that this transport's files share: the interface, its
 * endpoints, and the Unix sockets that connect them. An established
 * connection holds two descriptors on each side: a pidfd of the peer's process,
 * which becomes readable when the peer ends, and the peer's doorbell (a pipe
 * that wakes the peer).
 *
 * The files from the top down; a file calls only functions of files below it:
 *
 *   transport.c  the operations table; opening, polling, shutting down
 *   settings.c   PSP_SHM_*, and the ids of machine, user and process
 *   calibrate.c  how fast this machine copies and attaches
 *   listen.c     the private folder and the socket that peers connect to
 *   connect.c    connecting, and the packets that arrive on sockets
 *   inbox.[ch]   connections between the ranks of a job, without a socket
 *   trial.c      the states in which two endpoints prove their identity
 *   ep.c         endpoints: creating, addresses, closing
 *   resources.c  descriptors of rings and pipes that endpoints exchange
 *   receive.c    messages out of the rings
 *   map.c        maps the memory segments of a peer for reading
 *   adverts.c    advertised receives: a peer may take one for its message
 *   memory.c     registration, put and get (memory.h)
 *   copy.c       copies that both processes make, piece by piece
 *   cma.c        copies by cross-memory attach
 *   send.c       messages into the rings
 *   sleep.c      how this process falls asleep, and how peers wake it
 *   state.c      the states of endpoints, and how they fail
 *   socket.c     one Unix socket to one peer, and the packets on it
 *   active.c     the endpoints whose rings every pass of progress reads
 *   source.c     the descriptors that wake this process
 *   node.c       the memory file that the ranks of a job on one node share
 *   bitmap.[ch]  the bits by which peers show which ring has a record
 *   ring.[ch]    the ring itself */
#pragma once

#include <limits.h>
#include <sys/types.h>
#include <sys/un.h>

#include "pscompy/transport/kit/list.h"
#include "pscompy/transport/kit/log.h"
#include "pscompy/transport/kit/token_proof.h"
#include "bitmap.h"
#include "wire.h"

#define SHM_LISTENER "listener" /* prefix of a socket's name in its folder */
/* prefix of the name of a node file (node.c) in a job's folder */
#define SHM_NODE "node"
/* number of the blocks into which the pairs of ranks in a node file are
 * divided */
#define SHM_NODE_BLOCKS 12u
#define SHM_PATH_MAX sizeof(((struct sockaddr_un *)0)->sun_path)
/* Maximum length of one put, in bytes, because a put holds the worker's lock
 * while it copies. */
#define SHM_PUT_MAX (1u << 20)
/* Maximum length of one get, in bytes; a get is divided into many copies. */
#define SHM_GET_MAX (1u << 30)
/* The peer helps with no get below this length, because asking the peer would
 * cost more than its help gains. */
#define SHM_HELPED_MIN (32u << 10)
/* Messages up to this length are copied out of the ring before the upcall
 * am_recv reads them. */
#define SHM_PRIVATE_MAX 256u
/* maximum number of accepted sockets from which no hello (the packet that names
 * the wanted endpoint) has arrived */
#define SHM_ANONYMOUS_MAX 64u
/* age at which an accepted socket is closed if no hello (the packet that names
 * the wanted endpoint) has arrived */
#define SHM_ANONYMOUS_NS 10000000000ll

typedef struct shm_iface shm_iface_t;
typedef struct shm_ep shm_ep_t;
typedef struct shm_socket shm_socket_t;
typedef struct shm_adverts shm_adverts_t; /* defined in adverts.c */
typedef struct shm_inbox shm_inbox_t;

/* ---- descriptors of the epoll set ---- */

/* A descriptor in an epoll set, and its handler. Embedded in the structure that
 * owns the descriptor. */
typedef struct shm_source {
    void (*ready)(struct shm_source *self, uint32_t events);
    int fd; /* the descriptor; -1: there is none */
    int set; /* the epoll set that watches `fd` */
} shm_source_t;

/* ---- the interface ---- */

typedef enum shm_cma_mode {
    SHM_CMA_OFF,
    SHM_CMA_AUTO,
    SHM_CMA_FORCE
} shm_cma_mode_t;

typedef struct shm_listener {
    shm_source_t source;
    /* the folder of the listening socket; shorter than `path`, which holds the
     * folder and the socket's name */
    char folder[SHM_PATH_MAX - 32];
    char path[SHM_PATH_MAX];
    bool paused; /* The listener is not watched, because accept() fails. */
    /* the folder in which the ranks of a job find the memory file that they
     * share (node.c); empty before a job is joined */
    char job[SHM_PATH_MAX - 32];
} shm_listener_t;

/* Estimated speeds of copies, for psc_iface_attr_t. */
typedef struct shm_rates {
    /* bytes per second, copied through a ring's record and by cross-memory
     * attach */
    double copy, attach;
    double attach_ns; /* time that starting a cross-memory attach takes */
    bool measured; /* false: the rates are default values */
} shm_rates_t;

struct shm_iface {
    psc_iface_t super;
    /* all endpoints; those that were finalised stay in the array until progress
     * returns */
    shm_ep_t **eps;
    uint32_t n_eps, room;
    /* endpoints in state SHM_WATCH_POLLED or SHM_WATCH_NOTED (active.c) */
    shm_ep_t **active;
    uint32_t n_active;
    uint32_t n_noted; /* number of endpoints in state SHM_WATCH_NOTED */
    /* number of endpoints in state SHM_WATCH_IDLE or SHM_WATCH_DOORBELL */
    uint32_t n_idle;
    uint32_t n_quiet; /* number of endpoints in state SHM_WATCH_IDLE */
    uint32_t looks;
    shm_bitmap_t *bitmap;
    int bitmap_fd;
    /* the endpoint of each bit of `bitmap`, or NULL if the bit is unused */
    shm_ep_t **bits;
    uint32_t n_bits;
    /* number of endpoints in state NEW or CONNECTING; while there are any,
     * progress polls the sockets more often */
    uint32_t n_connecting;
    uint32_t n_failing; /* failures that progress has yet to report */
    /* number of passes of progress since the last poll of the sockets */
    uint32_t idle_polls;
    bool in_progress;
    /* The flags `sleeping` are set in the peers' rings, so that the peers wake
     * this process. */
    bool armed;
    /* A peer has written to the pipe `doorbell` since the last arm; the pipe
     * must be drained before the next arm. */
    bool rung;
    bool buried; /* a closed socket or a finalised endpoint waits to be freed */
    /* A peer has written to the pipe `doorbell`; a letter (the last packet of a
     * peer, see socket.c) may have arrived. */
    bool mail;
    bool closing;
    bool expedited; /* membarrier works, so producers need no fence */
    shm_cma_mode_t cma;
    shm_rates_t rates;
    shm_geometry_t geometry; /* size of the rings that this interface creates */
    int epoll;
    /* an epoll set inside `epoll`, with the listening socket, the pidfds of
     * peers, and `connect_doorbell` (the pipe to which ranks write to ask for a
     * connection); the descriptor of the set is what shm_join() stores in
     * *fd_p */
    shm_source_t peers;
    shm_source_t doorbell; /* pipe to which peers write to wake this process */
    shm_source_t timer; /* ticks while n_ticking > 0 or `releasing` */
    uint32_t n_ticking;
    /* rings may have pages to be given back to the system (source.c) */
    bool releasing;
    uint32_t n_anonymous;
    shm_listener_t listener;
    psc_list_t sockets;
    /* handlers of the socket, and of its pidfd of the peer's process */
    void (*socket_ready)(shm_source_t *socket, uint32_t events);
    void (*process_ready)(shm_source_t *process, uint32_t events);
    /* lists of all registrations, and of those that are not in use */
    psc_mem_t *mems, *free_mems;
    uint64_t last_seal;
    uint32_t n_copies; /* copies in flight (copy.c) of all endpoints */
    psc_list_t free_gets; /* shm_get_t (memory.c) that are not in use */
    uint8_t boot[SHM_ID_SIZE];
    uint8_t process[SHM_ID_SIZE]; /* random id of this interface */
    uid_t uid;
    int rank; /* our rank in the joined job, or SHM_NO_RANK */
    /* key of the joined job, by which its ranks trust each other */
    uint8_t key[PSC_TOKEN_SIZE];
    /* the memory file that the ranks of the job on this node share (node.c);
     * -1 before a job is joined */
    int node_fd;
    bool node_made; /* this process has made the node file */
    uint8_t *node; /* mapping of the inboxes in the node file */
    /* mappings of the node file's blocks of pairs; NULL until used */
    uint8_t *blocks[SHM_NODE_BLOCKS];
    shm_inbox_t *inbox; /* this rank's inbox; NULL before a job is joined */
    /* pipe to which a rank of the job writes when it asks for a connection */
    shm_source_t connect_doorbell;
    shm_ep_t **ranks; /* the endpoint of each rank of the job, or NULL */
};

/* ---- endpoints ---- */

/* The states of an endpoint; state.c has the table of permitted changes. */
typedef enum shm_ep_state {
    SHM_EP_NEW,
    SHM_EP_CONNECTING,
    SHM_EP_UP,
    SHM_EP_LEAVING, /* the peer has closed or is lost */
    SHM_EP_FAILED,
    SHM_EP_CLOSED,
    SHM_N_EP_STATES
} shm_ep_state_t;

/* An endpoint's address; it is sent without the bytes behind the path. Only
 * endpoints of one machine connect, so the fields have its byte order. */
typedef struct shm_address {
    uint32_t magic;
    uint32_t uid;
    uint32_t pid; /* shown in texts of errors only */
    uint32_t path_len;
    uint64_t ep;
    uint8_t boot[SHM_ID_SIZE];
    uint8_t process[SHM_ID_SIZE];
    char path[SHM_PATH_MAX];
} shm_address_t;

#define SHM_ADDRESS_MAGIC 0x6d687361u /* "ashm" */
#define SHM_ADDRESS_HEAD offsetof(shm_address_t, path)

/* A message that consists of several records and is arriving. */
typedef struct shm_incoming {
    /* bytes of the message that have yet to arrive; 0 if no message is
     * arriving */
    uint64_t rest;
    psc_dest_t dest;
    /* index of the piece of dest.iov that is being filled; `filled` of its
     * bytes are written */
    size_t piece;
    size_t filled;
} shm_incoming_t;

/* The memory that a peer reads (`bytes`) and writes (`echo`) while the
 * connection is being established, to show that cross-memory attach works. */
typedef struct shm_probe {
    uint8_t bytes[SHM_ID_SIZE];
    uint8_t echo[SHM_ID_SIZE];
    struct shm_probe *next;
} shm_probe_t;

/* One side of a copy that both processes make (copy.c). */
typedef struct shm_copy {
    psc_link_t listed; /* link in the list ep->copies */
    shm_side_t side;
    bool stopped; /* this side takes no more pieces */
    uint8_t *here; /* this side's buffer */
    uint64_t there; /* address of the other buffer, in the peer's process */
    uint64_t len;
    uint64_t own; /* bytes that this side has taken for copying */
    shm_cursor_t *cursor;
    uint64_t turn; /* turn of the cursor, by which copies are told apart */
    /* Of a get: the seal of the memory that is read, and the seal's address in
     * the process of that memory. Of another copy: 0. */
    uint64_t seal, seal_address;
    psc_status_t status; /* result of this side's pieces */
    psc_comp_t *comp; /* NULL if this side only helps with a get of the peer */
    /* Gives back what the copy uses, before its completion; or NULL. */
    void (*release)(shm_ep_t *ep, struct shm_copy *copy, psc_status_t status);
} shm_copy_t;

/* The ways to notice that a record has arrived in a ring (active.c). */
typedef enum shm_watch {
    SHM_WATCH_NONE, /* the endpoint is not up */
    SHM_WATCH_POLLED,
    SHM_WATCH_NOTED,
    SHM_WATCH_IDLE,
    SHM_WATCH_DOORBELL
} shm_watch_t;

struct shm_ep {
    psc_ep_t super;
    shm_ep_state_t state;
    /* ep_fini was called; the endpoint is freed when progress returns */
    bool dead;
    /* After publishing a record a sender needs a full fence before it reads the
     * flag `sleeping` (sleep.c), because one of the two processes cannot use
     * membarrier. */
    bool fenced;
    /* Cross-memory attach works in both directions, as shown by the trial
     * (trial.c). */
    bool cma;
    bool self; /* the endpoint is connected to itself */
    /* progress has yet to report the failure (`status` and `reason`) */
    bool failing;
    /* rank of the peer if ep_call connects the endpoint, or SHM_NO_RANK */
    int rank;
    int doorbell; /* pipe that wakes the peer, or -1 */
    shm_bitmap_t *peer_bitmap;
    uint32_t peer_bit; /* the bit that this side sets on peer_bitmap */
    /* the bit that the peer sets on this interface's bitmap (bitmap.h);
     * SHM_NO_BIT if all bits are taken */
    uint32_t bit;
    uint32_t at; /* index of the endpoint in iface->active */
    shm_watch_t watch;
    uint64_t seen; /* rx.consumed at the last shm_active_look() */
    shm_producer_t tx;
    shm_consumer_t rx;
    shm_incoming_t incoming;
    psc_list_t copies; /* copies in flight (copy.c), oldest first */
    /* state of advertised receives (adverts.c); NULL until the endpoint
     * advertises a receive or claims one of the peer */
    shm_adverts_t *adverts;
    /* gets of this side (shm_get_t) with which the peer was not asked to
     * help */
    psc_list_t unasked;
    /* bit set: which of the control page's `gets` are in use */
    uint32_t helped_gets;
    /* number of gets with which the peer was asked to help, by which those that
     * use the same cursor are told apart */
    uint32_t n_asked;
    /* gets of the peer, of which this process copies a part */
    shm_copy_t helps[SHM_HELPED_GETS];
    /* id of the peer's process; 0 if it is not visible in our name space */
    pid_t pid;
    uint64_t id; /* 0 until shm_ep_identify() is called */
    psc_role_t role;
    shm_socket_t *sock;
    shm_address_t peer;
    psc_proof_t proof; /* token proof; started by ep_connect */
    psc_status_t status; /* why the endpoint failed or is leaving */
    char reason[PSC_REASON_MAX];
    shm_probe_t *probe;
    /* The peer may still write to probe->echo, to show that cross-memory attach
     * works (shm_probe_t); so the probe must not be freed. */
    bool probing;
};

/* ---- sockets ---- */

/* The states of a socket; trial.c has the table of packets that they expect. */
typedef enum shm_socket_state {
    /* connector: repeats connect(), because the peer's backlog was full */
    SHM_SOCKET_DIAL,
    SHM_SOCKET_ANONYMOUS, /* acceptor: waits for the hello */
    SHM_SOCKET_PARKED, /* acceptor: waits until ep_connect is called */
    SHM_SOCKET_CHALLENGE, /* connector: waits for the challenge */
    /* acceptor: waits for the connector's resources, with the token proof */
    SHM_SOCKET_PROOF,
    SHM_SOCKET_RESOURCES, /* connector: waits for the acceptor's resources */
    SHM_SOCKET_VERDICT, /* waits for the verdict on cross-memory attach */
    /* both sides: connected; the socket shows when the peer ends */
    SHM_SOCKET_OPEN,
    /* both sides: this side has closed; the peer may not have */
    SHM_SOCKET_PARTING,
    SHM_SOCKET_OVER,
    SHM_N_SOCKET_STATES
} shm_socket_state_t;

struct shm_socket {
    shm_source_t socket;
    /* pidfd; becomes readable when the peer's process ends, even if a child of
     * the peer has inherited the socket */
    shm_source_t process;
    psc_link_t listed;
    shm_iface_t *iface;
    /* the endpoint that the socket connects; NULL in state ANONYMOUS */
    shm_ep_t *ep;
    shm_socket_state_t state;
    bool dead;
    /* This side could read the peer's probe (shm_probe_t) by cross-memory
     * attach. */
    bool verdict;
    /* The peer is set to SHM_CMA_FORCE: it fails the connection if cross-memory
     * attach does not work. */
    bool forced;
    /* The peer watches our process, so it needs no socket to notice that our
     * process has ended. */
    bool guarded;
    /* The state is OPEN and the socket is closed; the last packet arrives as a
     * letter, in the control page of the peer's ring. */
    bool by_mail;
    /* This side has written its letter (its last packet, see socket.c). */
    bool posted;
    pid_t pid;
    int64_t since; /* time at which the socket was accepted */
    shm_hello_t hello;
};

static inline shm_iface_t *shm_iface(psc_iface_t *iface)
{
    return (shm_iface_t *)iface;
}

static inline shm_ep_t *shm_ep(psc_ep_t *ep)
{
    return (shm_ep_t *)ep;
}

static inline shm_iface_t *shm_ep_iface(const shm_ep_t *ep)
{
    return (shm_iface_t *)ep->super.iface;
}

/* Returns the kind of the peer's letter (its last packet, written into the
 * control page of its ring), or 0 if there is none. */
static inline uint32_t shm_socket_letter(const shm_socket_t *sock)
{
    return sock->by_mail
               ? atomic_load_explicit(&sock->ep->rx.ring.control->letter.kind,
                                      memory_order_acquire)
               : 0;
}

/* Functions of calibrate.c. */
void shm_iface_calibrate(shm_iface_t *iface);

/* Functions of settings.c. */
psc_status_t shm_iface_configure(shm_iface_t *iface,
                                 const psc_open_params_t *params);
psc_status_t shm_iface_identify(shm_iface_t *iface, char *reason);

/* Functions of listen.c. */
psc_status_t shm_listener_open(shm_iface_t *iface, const char *base,
                               char *reason);
void shm_listener_close(shm_iface_t *iface);
psc_status_t shm_join(psc_iface_t *iface, const uint8_t *key, int rank,
                      int *fd_p);
void shm_listener_resume(shm_iface_t *iface);

/* Functions of connect.c. */
psc_status_t shm_ep_connect(psc_ep_t *ep, const psc_connect_params_t *params);
void shm_socket_dial(shm_socket_t *sock);
void shm_socket_ready(shm_source_t *socket, uint32_t events);
void shm_process_ready(shm_source_t *process, uint32_t events);
void shm_letters_take(shm_iface_t *iface);

/* Functions of trial.c. */
const char *shm_socket_state_name(shm_socket_state_t state);
void shm_trial_check(shm_socket_t *sock, psc_status_t status);
/* Acceptor: sends the challenge, once the hello has arrived and ep_connect was
 * called. */
void shm_trial_challenge(shm_socket_t *sock);
/* Called when both sides have reported whether cross-memory attach works: the
 * endpoint is then up, or fails. */
void shm_trial_finish(shm_socket_t *sock, bool verdict);
void shm_trial_receive(shm_socket_t *sock, const shm_packet_t *packet,
                       int *fds);
void shm_trial_hangup(shm_socket_t *sock);

/* Functions of inbox.c. */
/* Takes the inbox of our rank in the job's node file. Called while the job's
 * folder is locked. */
psc_status_t shm_inbox_create(shm_iface_t *iface);
void shm_inbox_close(shm_iface_t *iface);
/* Handles the bits on the bitmap of our inbox (inbox.h). A rank sets its bit if
 * it asks for a connection, has answered, or has published a record. */
void shm_inbox_collect(shm_iface_t *iface);
psc_status_t shm_ep_call(psc_ep_t *ep, int rank);
/* Checks whether the peer has accepted or refused the connection that
 * shm_ep_call() has asked of it. */
void shm_call_check(shm_ep_t *ep);

/* Functions of ep.c. */
psc_status_t shm_ep_create(psc_iface_t *iface, void *user, psc_ep_t **ep_p);
/* Draws the endpoint's random id, if that was not done before. Endpoints that
 * ep_call connects need none. */
psc_status_t shm_ep_identify(shm_ep_t *ep);
psc_status_t shm_ep_address(psc_ep_t *ep, uint8_t *address, size_t *len_p);
void shm_ep_close(psc_ep_t *ep);
psc_status_t shm_ep_stop(psc_ep_t *ep);
void shm_ep_fini(psc_ep_t *ep);
shm_ep_t *shm_ep_find(shm_iface_t *iface, uint64_t id);
int shm_ep_called(const psc_ep_t *ep, int *process_p);
/* Frees dead sockets and endpoints, unless progress iterates over them. */
void shm_iface_bury(shm_iface_t *iface);

/* Functions of resources.c. */
/* Sends the peer our resources (shm_resources_t): descriptors of our ring, of
 * our doorbell (a pipe that wakes us) and of our bitmap (bits that show which
 * ring has a record), and the address of the probe (bytes that the peer tries
 * to read). `answer` is the connector's reply to the challenge; NULL for the
 * acceptor. */
psc_status_t shm_trial_send_resources(shm_socket_t *sock,
                                      const uint8_t *answer);
/* Maps the ring and the bitmap of the peer's resources. Takes the doorbell (a
 * pipe) out of `fds`. The other descriptors stay there and are closed by the
 * caller. Returns false if the endpoint has failed. */
bool shm_trial_take_resources(shm_socket_t *sock,
                              const shm_resources_t *resources, int *fds);
shm_probe_t *shm_probe_create(void);
void shm_probe_drop(shm_probe_t *probe, bool probing);

/* Functions of receive.c and send.c. */
unsigned shm_am_poll(shm_ep_t *ep);
psc_status_t shm_am_reserve(shm_ep_t *ep, uint32_t lines);
/* Wakes the peer if it sleeps. Called after a record was published, or a number
 * of copied bytes (copy.c) was stored, for which the peer may wait. */
void shm_ep_wake(shm_ep_t *ep);
void shm_am_publish(shm_ep_t *ep, uint64_t word, uint32_t bytes);
/* Called after a record was published: wakes the receiver in the way that its
 * flag `sleeping` asks for. */
void shm_ep_signal(shm_ep_t *ep);
size_t shm_am_max(const shm_geometry_t *geometry);
psc_status_t shm_am_short(psc_ep_t *ep, uint8_t id, const void *header,
                          uint8_t header_len, const void *payload, size_t len);
psc_status_t shm_am_bcopy(psc_ep_t *ep, uint8_t id, const void *header,
                          uint8_t header_len, const psc_iov_t *iov,
                          size_t n_iov);

/* Functions of sleep.c. */
int shm_sleep_fd(psc_iface_t *iface);
psc_status_t shm_sleep_arm(psc_iface_t *iface);
void shm_sleep_disarm(shm_iface_t *iface);

/* Functions of state.c. */
psc_status_t shm_random(void *buffer, size_t len);
bool shm_ep_enter(shm_ep_t *ep, shm_ep_state_t state);
/* Records a failure of the endpoint; progress reports the failure. */
void shm_ep_fail(shm_ep_t *ep, psc_status_t status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Called when the peer has closed or is lost: progress delivers the records
 * that have arrived, then reports the failure. */
void shm_ep_leave(shm_ep_t *ep, psc_status_t status, const char *reason);
void shm_iface_report(shm_iface_t *iface);

/* Functions of socket.c. */
#define SHM_EXHAUSTED "no descriptor is left (RLIMIT_NOFILE; see ulimit -n)"
/* Returns the text of an errno for log lines. */
const char *shm_socket_why(int error);
bool shm_socket_exhausted(int error);
shm_socket_t *shm_socket_create(shm_iface_t *iface, int fd);
void shm_socket_enter(shm_socket_t *sock, shm_socket_state_t state);
psc_status_t shm_socket_identify(shm_socket_t *sock, char *reason);
/* Opens a pidfd of the peer's process, to notice when it ends. Does nothing if
 * that process is not visible in our name space. */
void shm_socket_guard(shm_socket_t *sock);
psc_status_t shm_socket_send(shm_socket_t *sock, shm_packet_t *packet,
                             const int *fds, size_t n_fds);
/* Receives a packet. Returns its length, 0 if the peer has closed, or -1.
 * Unused entries of `fds` stay -1. Sets *cut_p if the kernel dropped
 * descriptors because this process may open no more. */
ssize_t shm_socket_recv(shm_socket_t *sock, shm_packet_t *packet, int *fds,
                        bool *cut_p);
void shm_socket_refuse(shm_socket_t *sock, const char *reason);
/* Sends the socket's last packet. If the peer may still be writing into our
 * memory, the socket stays until the peer has closed it or the peer's process
 * has ended. */
void shm_socket_part(shm_socket_t *sock, shm_packet_t *packet);
void shm_socket_close(shm_socket_t *sock);
void shm_socket_free(shm_socket_t *sock);

/* Functions of active.c. */
/* If our bitmap (bitmap.h) has a bit left, gives it to the endpoint. The peer
 * sets this bit to report a record. */
void shm_active_enrol(shm_ep_t *ep);
/* Called when the endpoint is up: makes it active or idle (active.c). */
void shm_active_begin(shm_ep_t *ep);
void shm_active_add(shm_ep_t *ep);
/* Removes the endpoint from the active ones (active.c), and takes back its bit
 * of the bitmap. */
void shm_active_remove(shm_ep_t *ep);
/* Makes an idle endpoint active if a record has arrived in its ring. Returns
 * true if so. */
bool shm_active_notice(shm_ep_t *ep);
/* Calls `take` for each set bit of a bitmap, and clears the bits. */
void shm_active_take(shm_iface_t *iface, shm_bitmap_t *bitmap,
                     void (*take)(shm_iface_t *iface, uint32_t bit));
/* Makes those endpoints active (active.c) whose bits are set on our bitmap. */
void shm_active_collect(shm_iface_t *iface);
/* Looks for records in the rings of all idle endpoints (active.c). Returns true
 * if a record has arrived in one of them. */
bool shm_active_scan(shm_iface_t *iface);
void shm_active_look(shm_iface_t *iface);
/* Asks the peers of idle endpoints (active.c) to write to our doorbell, the
 * pipe that wakes us, from now on. Returns false if they have been asked
 * before. */
bool shm_active_ask_doorbell(shm_iface_t *iface);

/* Functions of source.c. */
psc_status_t shm_sources_open(shm_iface_t *iface);
void shm_sources_close(shm_iface_t *iface);
psc_status_t shm_source_watch(int set, shm_source_t *source);
void shm_source_unwatch(shm_source_t *source);
void shm_source_close(shm_source_t *source);
/* Creates a pipe. Returns one descriptor for reading and writing, or -1. */
int shm_pipe_open(void);
void shm_source_drain(const shm_source_t *source);
/* Handles the events of an epoll set; returns their number. */
unsigned shm_sources_poll(int set);
void shm_timer_run(shm_iface_t *iface, int change);
/* Called when a ring is about to use another page: from now on the timer gives
 * pages that are not used for a while back to the system. */
void shm_release_begin(shm_iface_t *iface);
/* Called when the timer ticks: gives unused pages of the rings back to the
 * system. */
void shm_release_step(shm_iface_t *iface);
void shm_doorbell_ring(int doorbell);
/* Executes a full fence in this process, and by membarrier in those peers that
 * execute no fence of their own (see shm_ep_t.fenced). */
void shm_source_barrier(const shm_iface_t *iface);
