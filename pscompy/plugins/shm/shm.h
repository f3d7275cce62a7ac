/* What the files of this transport share: the interface, its endpoints, and
 * the links (Unix sockets) that connect them and whose descriptors of the
 * peers' processes then stay as guards. A connection that is up has two
 * descriptors on each side: that one, and the peer's bell.
 *
 *   transport.c  the operations table; opening, polling, shutting down
 *   sleep.c      descriptors that wake us, and how peers are woken
 *   listen.c     the private folder and the socket that peers connect to
 *   link.c       one Unix socket to one peer: packets with descriptors
 *   mail.c       the last words of two endpoints, without the socket
 *   connect.c    the stages in which two endpoints come to trust each other
 *   offer.c      the rings, bells and probes that they offer each other
 *   wire.h       the packets on a link
 *   memory.h     what memory.c, share.c and map.c offer
 *   ep.c         endpoints: addresses, connecting, failing, closing
 *   send.c       messages into the rings
 *   receive.c    messages out of the rings
 *   memory.c     registration, and put and get by cross-memory attach
 *   share.c      large gets, at which both processes copy
 *   map.c        a peer's segments as memory of ours
 *   ring.[ch]    the ring itself */
#ifndef PSCOMPY_SHM_SHM_H
#define PSCOMPY_SHM_SHM_H

#include <sys/types.h>
#include <sys/un.h>

#include "pscompy/transport/kit/list.h"
#include "pscompy/transport/kit/log.h"
#include "pscompy/transport/kit/token_proof.h"
#include "ring.h"
#include "wire.h"

#define SHM_PATH_MAX sizeof(((struct sockaddr_un *)0)->sun_path)
#define SHM_PUT_MAX (1u << 20)    /* one copy holds the worker's lock */
#define SHM_GET_MAX (1u << 30)    /* one get is cut into many copies */
/* Smaller gets are not shared: asking the peer costs more than it gains. */
#define SHM_SHARE_MIN (128u << 10)
#define SHM_PRIVATE_MAX                                                        \
    256u      /* messages up to here are copied out of the                     \
                 ring before anybody looks at them */
#define SHM_ANONYMOUS_MAX 64u /* callers that have not named an endpoint */
#define SHM_ANONYMOUS_NS 10000000000ll /* how long they may take */

typedef struct shm_iface shm_iface_t;
typedef struct shm_ep shm_ep_t;
typedef struct shm_link shm_link_t;

/* ---- descriptors that wake us ---- */

/* Embedded in whatever owns the descriptor. */
typedef struct shm_source {
    void (*ready)(struct shm_source *self, uint32_t events);
    int fd; /* -1: none */
} shm_source_t;

/* ---- the interface ---- */

typedef enum shm_cma_mode {
    SHM_CMA_OFF,
    SHM_CMA_AUTO,
    SHM_CMA_FORCE
} shm_cma_mode_t;

typedef struct shm_door {
    shm_source_t listener;
    char folder[SHM_PATH_MAX - 32]; /* leaves room for the socket's name */
    char path[SHM_PATH_MAX];
    bool paused; /* the listener is not watched: accepting fails */
} shm_door_t;

struct shm_iface {
    psc_iface_t super;
    shm_ep_t **eps; /* dead ones stay until the end of progress */
    uint32_t n_eps, room;
    uint32_t n_connecting; /* endpoints not yet up: look at sockets often */
    uint32_t n_failing; /* failures to be told from progress */
    uint32_t idle_polls; /* since the sockets were looked at */
    bool in_progress;
    bool armed; /* peers are asked to wake us */
    bool rung; /* one has: the bell is to be silenced */
    bool buried; /* something waits to be freed */
    bool mail; /* the bell has rung, perhaps for a letter */
    bool closing;
    bool expedited; /* membarrier works: producers need no fence */
    shm_cma_mode_t cma;
    shm_geometry_t geometry; /* of the rings that we make */
    int epoll;
    shm_source_t bell; /* eventfd: peers write to it */
    shm_source_t timer; /* ticks while n_ticking */
    uint32_t n_ticking;
    uint32_t n_anonymous;
    shm_door_t door;
    psc_list_t links;
    psc_mem_t *mems, *free_mems; /* all registrations, and those not in use */
    uint64_t last_seal;
    uint32_t n_sharing; /* gets under way, ours and those that we help with */
    psc_list_t free_shares;
    uint8_t boot[SHM_ID_SIZE];
    uint8_t process[SHM_ID_SIZE]; /* random: this interface of this process */
    uid_t uid;
};

/* ---- endpoints ---- */

/* State, and the states that may follow. */
#define SHM_EP_STATES(X)                                                       \
    X(NEW, SHM_TO(CONNECTING) | SHM_TO(UP) | SHM_TO(FAILED) | SHM_TO(CLOSED))  \
    X(CONNECTING, SHM_TO(UP) | SHM_TO(FAILED) | SHM_TO(CLOSED))                \
    X(UP, SHM_TO(LEAVING) | SHM_TO(FAILED) | SHM_TO(CLOSED))                   \
    X(LEAVING, SHM_TO(FAILED) | SHM_TO(CLOSED)) /* the peer is gone */         \
    X(FAILED, SHM_TO(CLOSED))                                                  \
    X(CLOSED, 0)

#define SHM_TO(state) (1u << SHM_EP_##state)

typedef enum shm_ep_state {
#define SHM_EP_ENUM(state, next) SHM_EP_##state,
    SHM_EP_STATES(SHM_EP_ENUM)
#undef SHM_EP_ENUM
        SHM_N_EP_STATES
} shm_ep_state_t;

/* An endpoint's address, unpacked. */
typedef struct shm_address {
    uint8_t boot[SHM_ID_SIZE];
    uint8_t process[SHM_ID_SIZE];
    uint32_t uid;
    uint32_t pid; /* for messages to people only */
    uint64_t ep;
    char path[SHM_PATH_MAX];
} shm_address_t;

/* A message that arrives as several records. */
typedef struct shm_incoming {
    uint64_t rest; /* bytes still to come; 0: no such message */
    psc_dest_t dest;
    size_t piece; /* of dest.iov, and the bytes already in it */
    size_t filled;
} shm_incoming_t;

/* The memory that a peer reads (`bytes`) and writes (`echo`) while the link
 * comes up, to show that cross-memory attach works. */
typedef struct shm_probe {
    uint8_t bytes[SHM_ID_SIZE];
    uint8_t echo[SHM_ID_SIZE];
    struct shm_probe *next;
} shm_probe_t;

/* A get of the peer's that we may help with. */
typedef struct shm_help {
    const psc_mem_t *mem; /* NULL: none */
    uint64_t seal; /* of mem, when we were asked */
    uint64_t from, to; /* our address and the peer's */
    uint64_t len, done;
    uint64_t turn;
} shm_help_t;

struct shm_ep {
    psc_ep_t super;
    shm_ep_state_t state;
    bool dead; /* fini was called; freed at the end of progress */
    bool fenced; /* the peer cannot do without our fence when it sleeps */
    bool cma; /* proved in the trial, by both sides */
    bool self; /* connected to itself */
    bool failing; /* status and reason are to be told from progress */
    bool expected; /* counted in n_connecting */
    int bell; /* the peer's eventfd, -1: none */
    shm_producer_t tx;
    shm_consumer_t rx;
    shm_incoming_t incoming;
    psc_list_t shares; /* our large gets, in order */
    uint32_t share_slots; /* those of SHM_SHARE_SLOTS in use, as bits */
    uint32_t turn; /* counts the uses of slots */
    shm_help_t helps[SHM_SHARE_SLOTS];
    pid_t pid; /* of the peer, as the kernel says; 0: not visible to us */
    uint64_t id;
    psc_role_t role;
    shm_link_t *link;
    shm_address_t peer;
    psc_proof_t proof; /* of the token; begun by ep_connect */
    psc_status_t status; /* why it failed or is leaving */
    char reason[PSC_REASON_MAX];
    shm_probe_t *probe;
    bool probing; /* the peer may still write the echo */
};

/* ---- links ---- */

/* Stage, the packet that it waits for, descriptors that come with it. */
#define SHM_LINK_STAGES(X)                                                     \
    X(DIAL, NONE, 0) /* connector: the peer's backlog is full */               \
    X(ANONYMOUS, HELLO, 0) /* acceptor: who is it? */                          \
    X(PARKED, NONE, 0) /* acceptor: ep_connect has yet to be called */         \
    X(CHALLENGE, CHALLENGE, 0) /* connector */                                 \
    X(PROOF, OFFER, 2) /* acceptor */                                          \
    X(OFFER, OFFER, 2) /* connector */                                         \
    X(VERDICT, VERDICT, 0) /* both */                                          \
    X(OPEN, GOODBYE, 0) /* both: the guard of a connection */                  \
    X(PARTING, GOODBYE, 0) /* both: we have ended; has the peer? */            \
    X(OVER, NONE, 0)

typedef enum shm_stage {
#define SHM_STAGE_ENUM(stage, packet, n_fds) SHM_STAGE_##stage,
    SHM_LINK_STAGES(SHM_STAGE_ENUM)
#undef SHM_STAGE_ENUM
        SHM_N_STAGES
} shm_stage_t;

struct shm_link {
    shm_source_t socket;
    shm_source_t process; /* pidfd: tells of the peer's end even if a child of
                             the peer has inherited the socket */
    psc_link_t listed;
    shm_iface_t *iface;
    shm_ep_t *ep; /* NULL while anonymous */
    shm_stage_t stage;
    bool dead;
    bool connector;
    bool verdict; /* our half of it */
    bool guarded; /* the peer needs no socket to notice our end */
    bool by_mail; /* OPEN, and the socket is closed */
    bool posted; /* our letter is written */
    pid_t pid;
    int64_t since; /* anonymous: accepted when */
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

/* transport.c */
psc_status_t shm_random(void *buffer, size_t len);
/* Free what is dead, unless progress is walking over it. */
void shm_iface_bury(shm_iface_t *iface);

/* sleep.c */
psc_status_t shm_sleep_open(shm_iface_t *iface);
void shm_sleep_close(shm_iface_t *iface);
psc_status_t shm_source_watch(shm_iface_t *iface, shm_source_t *source);
void shm_source_unwatch(shm_iface_t *iface, shm_source_t *source);
void shm_source_close(shm_iface_t *iface, shm_source_t *source);
unsigned shm_sleep_poll(shm_iface_t *iface);
void shm_sleep_tick(shm_iface_t *iface, int change);
int shm_sleep_fd(psc_iface_t *iface);
psc_status_t shm_sleep_arm(psc_iface_t *iface);
void shm_sleep_disarm(shm_iface_t *iface);
void shm_bell_ring(int bell);

/* After publishing: wake the receiver if it sleeps. */
static inline void shm_ep_wake(shm_ep_t *ep)
{
    _Atomic uint32_t *sleeping = &ep->tx.ring.control->sleeping;

    if (ep->fenced)
        atomic_thread_fence(memory_order_seq_cst);
    else
        atomic_signal_fence(memory_order_seq_cst);
    if (__builtin_expect(
            atomic_load_explicit(sleeping, memory_order_relaxed) != 0, 0) &&
        atomic_exchange_explicit(sleeping, 0, memory_order_relaxed) != 0)
        shm_bell_ring(ep->bell);
}

/* listen.c */
psc_status_t shm_door_open(shm_iface_t *iface, const char *base, char *reason);
void shm_door_close(shm_iface_t *iface);
void shm_door_resume(shm_iface_t *iface);

/* link.c */
#define SHM_EXHAUSTED "no descriptor is left (RLIMIT_NOFILE; see ulimit -n)"
/* The text of errno for people. */
const char *shm_link_why(int error);
bool shm_link_exhausted(int error);
shm_link_t *shm_link_create(shm_iface_t *iface, int fd, bool connector);
void shm_link_enter(shm_link_t *link, shm_stage_t stage);
psc_status_t shm_link_identify(shm_link_t *link, char *reason);
psc_status_t shm_link_send(shm_link_t *link, shm_packet_t *packet,
                           const int *fds, size_t n_fds);
void shm_link_refuse(shm_link_t *link, const char *reason);
/* Our last packet. Where the peer may be writing into our memory, the link
 * stays until the peer has ended it, or its process has ended. */
void shm_link_part(shm_link_t *link, shm_packet_t *packet);
void shm_link_close(shm_link_t *link);
void shm_link_free(shm_link_t *link);

/* mail.c */
/* Also by mail, if the peer may have no socket any more. */
void shm_mail_post(shm_link_t *link, const shm_packet_t *packet);
void shm_mail_begin(shm_link_t *link);
void shm_mail_take(shm_link_t *link);
void shm_mail_collect(shm_iface_t *iface);
bool shm_mail_waits(const shm_ep_t *ep);
/* The peer has ended the link, and may have freed its memory. */
bool shm_mail_says_end(const shm_link_t *link);

/* offer.c */
/* `answer` is the connector's to the challenge, or NULL. */
psc_status_t shm_trial_send_offer(shm_link_t *link, const uint8_t *answer);
/* Takes the bell out of fds; the ring's descriptor is not needed once it is
 * mapped. Returns false if the endpoint has failed. */
bool shm_trial_take_offer(shm_link_t *link, const shm_offer_t *offer, int *fds);
shm_probe_t *shm_probe_create(void);
void shm_probe_drop(shm_probe_t *probe, bool probing);

/* connect.c */
const char *shm_stage_name(shm_stage_t stage);
/* Acceptor, ep_connect was called: go on with a caller who waits. */
void shm_trial_challenge(shm_link_t *link);
void shm_trial_dial(shm_link_t *link);
void shm_trial_receive(shm_link_t *link, const shm_packet_t *packet, int *fds);
void shm_trial_hangup(shm_link_t *link);

/* ep.c */
psc_status_t shm_ep_create(psc_iface_t *iface, void *user, psc_ep_t **ep_p);
psc_status_t shm_ep_address(psc_ep_t *ep, uint8_t *address, size_t *len_p);
psc_status_t shm_ep_connect(psc_ep_t *ep, const psc_connect_params_t *params);
void shm_ep_close(psc_ep_t *ep);
psc_status_t shm_ep_stop(psc_ep_t *ep);
void shm_ep_fini(psc_ep_t *ep);
void shm_ep_free(shm_ep_t *ep);
shm_ep_t *shm_ep_find(shm_iface_t *iface, uint64_t id);
bool shm_ep_enter(shm_ep_t *ep, shm_ep_state_t state);
/* Note the failure; it is told from progress. */
void shm_ep_fail(shm_ep_t *ep, psc_status_t status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The peer is gone: what has arrived is delivered first. */
void shm_ep_leave(shm_ep_t *ep, psc_status_t status, const char *reason);
void shm_ep_report(shm_ep_t *ep);

/* send.c, receive.c */
psc_status_t shm_am_reserve(shm_ep_t *ep, uint32_t lines);
void shm_am_publish(shm_ep_t *ep, uint64_t word, uint32_t bytes);
size_t shm_am_max(const shm_geometry_t *geometry);
unsigned shm_am_poll(shm_ep_t *ep);
psc_status_t shm_am_short(psc_ep_t *ep, uint8_t id, const void *header,
                          uint8_t header_len, const void *payload, size_t len);
psc_status_t shm_am_bcopy(psc_ep_t *ep, uint8_t id, const void *header,
                          uint8_t header_len, const psc_iov_t *iov,
                          size_t n_iov);

#endif
