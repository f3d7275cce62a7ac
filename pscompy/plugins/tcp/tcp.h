/* The objects of this transport: the interface, its endpoints, and the callers
 * that have not yet named an endpoint. Each C file has a header that says what
 * it offers; from the top down:
 *
 *   transport   the operations table; opening, progress, the alarm
 *   listen      the listener, and callers that name no endpoint yet
 *   connect     the stages in which an endpoint comes up; the acceptor
 *   dial        the connector: the peer's addresses, tried side by side
 *   ep          endpoints: creating, failing, closing
 *   receive     frames that arrive
 *   send        frames on their way out
 *   stage       the one door between stages; what is watched; the hot socket
 *   sleep       descriptors in the epoll set, and the alarm
 *   network     the addresses of this host that are used
 *   address     socket addresses, and endpoint addresses as bytes
 *   settings    the settings of PSP_TCP_*, and sockets tuned by them
 *   wire        the bytes on the stream
 *
 * An endpoint has one socket; with PSC_ROLE_SELF it has both ends of a socket
 * pair. Everything is level triggered: what is left in a socket wakes again,
 * so nothing can be forgotten. */
#ifndef PSCOMPY_TCP_TCP_H
#define PSCOMPY_TCP_TCP_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "pscompy/transport/kit/list.h"
#include "pscompy/transport/kit/log.h"
#include "pscompy/transport/transport.h"
#include "wire.h"

#define TCP_CALLERS_MAX 1024u /* that have not named an endpoint */
#define TCP_CALLERS_SHARE 8u  /* nor more than one of so many descriptors */
#define TCP_BUCKETS 256u      /* in which callers are counted by source */
#define TCP_SENDS_MAX 16u     /* zero-copy sends in flight per endpoint */
#define TCP_IOV_MAX 16u       /* pieces of one message */
#define TCP_SHORT_MAX 512u    /* longest header and payload of am_short */
#define TCP_EVENTS_MAX 16     /* sockets served by one progress */
#define TCP_ZCOPY_MAX ((size_t)1 << 62)
/* A payload up to here is waited for in the read buffer; a longer one goes
 * to its destination as soon as its header is known. */
#define TCP_WHOLE_MAX 2048u
/* What one read takes in besides a payload with a destination: many short
 * frames, but little of a long one, whose bytes would be copied once more. */
#define TCP_READ_MAX 16384u
#define TCP_NEVER INT64_MAX

typedef struct tcp_iface tcp_iface_t;
typedef struct tcp_ep tcp_ep_t;
typedef union tcp_sockaddr tcp_sockaddr_t;

union tcp_sockaddr {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

/* ---- what epoll reports; embedded in whatever owns the descriptor ---- */

typedef struct tcp_source tcp_source_t;
struct tcp_source {
    void (*ready)(tcp_source_t *self, uint32_t events);
    int fd;          /* -1: none */
    uint32_t events; /* watched; 0: not in the set */
};

/* ---- settings ---- */

typedef struct tcp_settings {
    const char *host, *network; /* valid during open only */
    uint16_t port_first, port_last;
    int sndbuf, rcvbuf; /* 0: the kernel's choice */
    bool nodelay;
    int backlog;
    int64_t accept_ns, connect_ns;
    size_t buffer_size;
} tcp_settings_t;

/* ---- the interface ---- */

/* A caller until its hello is complete. */
typedef struct tcp_caller {
    tcp_source_t source;
    tcp_iface_t *iface;
    psc_link_t link; /* in the interface's callers, or vacant */
    unsigned bucket; /* where it comes from */
    int64_t deadline;
    size_t have;
    uint8_t hello[TCP_HELLO_SIZE];
} tcp_caller_t;

struct tcp_iface {
    psc_iface_t super;
    tcp_settings_t settings;
    int epoll_fd;
    tcp_source_t listener;
    tcp_source_t alarm; /* a timer: deadlines, and progress wanted at once */
    int64_t alarm_at;   /* TCP_NEVER: not set */
    tcp_caller_t *places; /* stay while the interface does */
    unsigned n_places, n_callers;
    psc_list_t callers, vacant; /* places; callers the oldest first */
    uint16_t n_from[TCP_BUCKETS];
    uint64_t host_id;   /* who shares it can use our loopback addresses */
    tcp_sockaddr_t addresses[TCP_ADDRESSES_MAX];
    unsigned n_addresses;
    psc_list_t connecting; /* endpoints that are not up */
    psc_list_t settled;    /* up, failed or closed */
    psc_list_t graveyard;  /* freed at the end of progress */
    unsigned n_holding;    /* endpoints that hold what was sent */
    tcp_ep_t *hot;         /* the last that received: asked first */
    unsigned streak;       /* how often in a row it did */
    unsigned turns;
    unsigned handled;      /* events of this progress */
    bool in_progress;
    /* the handlers of endpoints' sockets, from connect.h */
    void (*rx_ready)(tcp_source_t *source, uint32_t events);
    void (*tx_ready)(tcp_source_t *source, uint32_t events);
};

/* ---- endpoints ---- */

/* The one list of stages: name, and what a readable or broken socket means. */
#define TCP_STAGE_LIST(X)                                                      \
    X(NEW, none)                     /* created */                             \
    X(CALLED, lost)                  /* a caller came before ep_connect */     \
    X(CONNECTING, none)              /* connector: addresses are dialled */    \
    X(AWAIT_CALL, none)              /* acceptor: nobody called yet */         \
    X(AWAIT_ANSWER, answered)        /* acceptor: challenge is out */          \
    X(UP, received)                  /* frames */                              \
    X(FAILING, none)                 /* ep_failed follows from progress */     \
    X(FAILED, none)                                                            \
    X(CLOSING, discarded)            /* what was sent drains */                \
    X(CLOSED, none)

typedef enum tcp_stage {
#define TCP_STAGE_ENUM(name, handler) TCP_EP_##name,
    TCP_STAGE_LIST(TCP_STAGE_ENUM)
#undef TCP_STAGE_ENUM
        TCP_N_STAGES
} tcp_stage_t;

/* A zero-copy send: its pieces follow the bytes of the out-ring up to
 * `after`. */
typedef struct tcp_send {
    uint64_t after;
    struct iovec iov[TCP_IOV_MAX];
    unsigned n_iov, at; /* pieces; the first one that is not done */
    psc_comp_t *comp;
} tcp_send_t;

/* Bytes and sends in order. Positions only grow; a byte lives at
 * position % room. */
typedef struct tcp_out {
    uint8_t *ring;
    size_t room; /* a power of two */
    uint64_t head, tail;
    uint64_t
        owed; /* up to here are bytes whose send has been said to be done */
    bool holding;  /* there are some */
    tcp_send_t sends[TCP_SENDS_MAX];
    uint64_t first_send, last_send; /* likewise */
    bool finished; /* the peer takes no more */
} tcp_out_t;

static inline bool tcp_out_empty(const tcp_out_t *out)
{
    return out->finished ||
           (out->head == out->tail && out->first_send == out->last_send);
}

typedef struct tcp_in {
    uint8_t *buffer; /* of TCP_READ_MAX bytes */
    size_t start, end;
    uint64_t header[PSC_AM_HEADER_MAX / 8];
    /* a payload that goes straight to its destination */
    uint64_t body_left; /* 0: none */
    psc_dest_t dest;
    size_t dest_at, dest_offset; /* first piece that is not full */
    bool long_ones; /* the last payload was long: so is probably the next */
    bool goodbye;   /* the peer said that it would end */
} tcp_in_t;

/* One address of the peer that is dialled. */
typedef struct tcp_dial {
    tcp_source_t source; /* fd -1: not yet, or not any more */
    tcp_ep_t *ep;
    bool greeted; /* our hello is out */
    int64_t deadline; /* for the kernel to connect */
    psc_proof_t proof;
    size_t have;
    uint8_t challenge[TCP_CHALLENGE_SIZE];
} tcp_dial_t;

struct tcp_ep {
    psc_ep_t super;
    psc_link_t link; /* in one of the interface's lists */
    tcp_stage_t stage;
    psc_role_t role;
    uint64_t id;
    tcp_source_t rx;
    tcp_source_t tx; /* only with PSC_ROLE_SELF a socket of its own */
    bool aside;      /* hot, and not in the set: progress asks its socket */
    tcp_in_t in;
    tcp_out_t out;
    /* connecting */
    psc_proof_t proof; /* the acceptor's; a connector has one for each dial */
    uint8_t caller_nonce[PSC_PROOF_NONCE_SIZE]; /* CALLED: from the hello */
    uint64_t peer_id;
    bool same_host;
    tcp_sockaddr_t candidates[TCP_ADDRESSES_MAX];
    unsigned n_candidates, candidate; /* the next one to be dialled */
    tcp_dial_t *dials; /* one for each candidate, only the connector has them */
    bool greeted; /* somebody has taken our hello */
    int64_t deadline; /* when the next one is dialled */
    char tried[PSC_REASON_MAX]; /* the candidates that fell, and why */
    /* failing */
    bool closed; /* ep_close came first: nobody is told */
    psc_status_t status;
    char peer[64]; /* for people */
    char reason[PSC_REASON_MAX];
};

static inline tcp_iface_t *tcp_ep_iface(const tcp_ep_t *ep)
{
    return (tcp_iface_t *)ep->super.iface;
}

#endif
