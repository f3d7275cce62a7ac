/* What the files of this transport share: the interface, its endpoints, and
 * the callers that have not yet said whom they want.
 *
 *   transport.c  the operations table; opening, its alarm, shutting down
 *   poll.c       which sockets are looked at, when, and sleeping on them
 *   settings.c   the settings of PSP_TCP_*, as the interface keeps them
 *   address.c    socket addresses, and endpoint addresses as bytes
 *   network.c    which addresses of this host we use
 *   listen.c     the listener, and callers that name no endpoint yet
 *   connect.c    the stages in which an endpoint comes up
 *   ep.c         endpoints: creating, failing, closing
 *   send.c       frames on their way out
 *   stream.c     frames that come in
 *   wire.h       the bytes on the stream
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
    uint64_t owed; /* up to here are bytes whose send has been said to be done */
    bool holding;  /* there are some */
    tcp_send_t sends[TCP_SENDS_MAX];
    uint64_t first_send, last_send; /* likewise */
    bool finished; /* the peer takes no more */
} tcp_out_t;

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
    bool greeted;      /* somebody has taken our hello */
    int64_t deadline;  /* when the next one is dialled */
    char tried[PSC_REASON_MAX]; /* the candidates that fell, and why */
    /* failing */
    bool closed; /* ep_close came first: nobody is told */
    psc_status_t status;
    char peer[64]; /* for people */
    char reason[PSC_REASON_MAX];
};

/* ---- transport.c ---- */

uintptr_t tcp_transport(void);
/* Have progress called, and deadlines looked at, at this time or before. */
void tcp_iface_wake_at(tcp_iface_t *iface, int64_t when);

/* ---- poll.c ---- */

psc_status_t tcp_source_watch(tcp_iface_t *iface, tcp_source_t *source,
                              uint32_t events);
void tcp_source_close(tcp_iface_t *iface, tcp_source_t *source);
/* This endpoint has received; or (NULL) the hot one is not to be asked. */
void tcp_hot_set(tcp_iface_t *iface, tcp_ep_t *ep);
unsigned tcp_progress(psc_iface_t *iface);
int tcp_event_fd(psc_iface_t *iface);
psc_status_t tcp_arm(psc_iface_t *iface);

/* ---- settings.c ---- */

psc_status_t tcp_settings_read(const psc_open_params_t *params,
                               tcp_settings_t *settings_p);

/* ---- address.c ---- */

/* Fills addresses (ports 0) and host_id. */
psc_status_t tcp_address_choose(tcp_iface_t *iface, char *reason);
bool tcp_address_is_loopback(const tcp_sockaddr_t *address);
uint16_t tcp_address_port(const tcp_sockaddr_t *address);
void tcp_address_set_port(tcp_sockaddr_t *address, uint16_t port);
socklen_t tcp_address_len(const tcp_sockaddr_t *address);
void tcp_address_print(const tcp_sockaddr_t *address, char *text, size_t room);
psc_status_t tcp_address_pack(const tcp_ep_t *ep, uint8_t *bytes,
                              size_t *len_p);
/* Fills peer_id, same_host and candidates; refuses what is not exactly an address. */
psc_status_t tcp_address_unpack(tcp_ep_t *ep, const uint8_t *bytes,
                                size_t len);

/* ---- listen.c ---- */

void tcp_socket_tune(const tcp_settings_t *settings, int fd);
/* The peer is on this host. */
void tcp_socket_tune_local(int fd);
psc_status_t tcp_listener_open(tcp_iface_t *iface, char *reason);
void tcp_listener_close(tcp_iface_t *iface); /* and drops its callers */
/* Drops callers that are too slow. Returns when to look again. */
int64_t tcp_listener_expire(tcp_iface_t *iface, int64_t now);

/* ---- connect.c ---- */

psc_status_t tcp_ep_connect(psc_ep_t *ep, const psc_connect_params_t *params);
/* From progress: a caller's hello is complete; fd changes hands. */
void tcp_ep_take_call(tcp_iface_t *iface, int fd, const uint8_t *hello);
/* From progress: goes on to the next address where one does not answer, and
 * tells failures. Returns when to look again. */
int64_t tcp_connect_expire(tcp_iface_t *iface, int64_t now);
void tcp_dials_close(tcp_ep_t *ep);
/* The handlers of an endpoint's sockets. */
void tcp_ep_ready(tcp_source_t *source, uint32_t events);
void tcp_ep_writable(tcp_source_t *source, uint32_t events);

/* ---- ep.c ---- */

const char *tcp_stage_name(tcp_stage_t stage);
/* The one door between stages. */
void tcp_ep_enter(tcp_ep_t *ep, tcp_stage_t stage);
psc_status_t tcp_ep_create(psc_iface_t *iface, void *user, psc_ep_t **ep_p);
psc_status_t tcp_ep_address(psc_ep_t *ep, uint8_t *address, size_t *len_p);
void tcp_ep_close(psc_ep_t *ep);
psc_status_t tcp_ep_stop(psc_ep_t *ep);
void tcp_ep_fini(psc_ep_t *ep);
void tcp_ep_free(tcp_ep_t *ep);
/* Closed for good: no socket any more. */
void tcp_ep_end(tcp_ep_t *ep);
/* From anywhere: record why, ep_failed follows from progress. */
void tcp_ep_break(tcp_ep_t *ep, psc_status_t status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* From progress: tell it now. */
void tcp_ep_tell_failure(tcp_ep_t *ep);
/* Watch what the stage and the out-queue need, or break. */
void tcp_ep_watch(tcp_ep_t *ep);

/* ---- send.c ---- */

psc_status_t tcp_out_init(tcp_out_t *out, size_t buffer_size);
void tcp_out_free(tcp_out_t *out);
bool tcp_out_empty(const tcp_out_t *out);
/* From progress: send what the socket takes, complete what is finished. */
void tcp_out_flush(tcp_ep_t *ep);
/* The last frame: nothing follows. */
void tcp_out_goodbye(tcp_ep_t *ep);
/* From progress: complete everything in flight with an error. */
void tcp_out_cancel(tcp_ep_t *ep, psc_status_t status);
/* The socket is going: nothing leaves any more. */
void tcp_out_finish(tcp_ep_t *ep);
psc_status_t tcp_am_bcopy(psc_ep_t *ep, uint8_t id, const void *header,
                          uint8_t header_len, const psc_iov_t *iov,
                          size_t n_iov);
psc_status_t tcp_am_short(psc_ep_t *ep, uint8_t id, const void *header,
                          uint8_t header_len, const void *payload, size_t len);
psc_status_t tcp_am_zcopy(psc_ep_t *ep, uint8_t id, const void *header,
                          uint8_t header_len, const psc_iov_t *iov,
                          size_t n_iov, psc_comp_t *comp);

/* ---- stream.c ---- */

psc_status_t tcp_in_init(tcp_in_t *in);
void tcp_in_free(tcp_in_t *in);
/* From progress: one read, and everything that it completed. */
void tcp_stream_receive(tcp_ep_t *ep);
/* After our close: read and forget. */
void tcp_stream_discard(tcp_ep_t *ep);

#endif
