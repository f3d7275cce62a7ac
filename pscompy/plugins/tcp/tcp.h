/* The objects of this transport: the interface, its endpoints, and the callers
 * that have not named an endpoint; and what each C file offers. From the top
 * down:
 *
 *   transport   the operations table; opening, progress, the alarm
 *   listen      the listener, and callers that have not named an endpoint
 *   connect     the stages in which an endpoint connects; the acceptor
 *   dial        the connector: dials the peer's addresses in parallel
 *   ep          endpoints: creating, failing, closing
 *   receive     receiving frames
 *   send        sending frames
 *   stage       changes of stage; watched events; the hot socket (polled first)
 *   pace        how many unsent bytes of a stream the kernel takes
 *   sleep       descriptors in the epoll set, and the alarm
 *   network     the addresses of this host that are used
 *   address     socket addresses, and endpoint addresses as bytes
 *   settings    the settings of PSP_TCP_*, applied to sockets
 *   wire        the bytes on the stream
 *
 * An endpoint has one socket; with PSC_ROLE_SELF it has both ends of a socket
 * pair. All descriptors are watched level-triggered: bytes that stay in a
 * socket make it readable again, so none is forgotten. */
#pragma once

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "pscompy/transport/kit/list.h"
#include "pscompy/transport/kit/log.h"
#include "pscompy/transport/kit/operations.h"
#include "pscompy/transport/transport.h"
#include "wire.h"

/* most callers: accepted sockets without endpoint */
#define TCP_CALLERS_MAX 1024u
/* callers take at most one eighth of the process's descriptors */
#define TCP_CALLERS_SHARE 8u
#define TCP_BUCKETS 256u /* buckets for counting callers by source address */
#define TCP_SENDS_MAX 16u /* zero-copy sends in flight per endpoint */
#define TCP_IOV_MAX 16u /* pieces of one message */
#define TCP_SHORT_MAX 512u /* longest header plus payload of am_short */
#define TCP_EVENTS_MAX 16 /* events handled in one progress */
#define TCP_ZCOPY_MAX ((size_t)1 << 62)
/* A payload up to this length is collected in the read buffer; a longer one is
 * read into its destination as soon as its header is known. */
#define TCP_WHOLE_MAX 2048u
/* Size of the read buffer: room for many short frames, but small compared with
 * a long payload, whose bytes in the buffer must be copied once more. */
#define TCP_READ_MAX 16384u
/* With several rails, the lower bound of the unsent bytes that the kernel takes
 * of a stream (pace.c). */
#define TCP_UNSENT_MIN (128 << 10)
#define TCP_NEVER INT64_MAX

typedef struct tcp_iface tcp_iface_t;
typedef struct tcp_ep tcp_ep_t;
typedef union tcp_sockaddr tcp_sockaddr_t;

union tcp_sockaddr {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

/* ---- entries of the epoll set ---- */

/* A descriptor in the epoll set, and its handler. Embedded in the structure
 * that owns the descriptor. */
typedef struct tcp_source tcp_source_t;
struct tcp_source {
    void (*ready)(tcp_source_t *self, uint32_t events);
    int fd; /* -1: no descriptor */
    uint32_t events; /* watched events; 0 if not in the set */
};

/* ---- settings ---- */

typedef struct tcp_settings {
    const char *host, *network, *rails; /* valid during open only */
    /* the interface is a rail: its sockets are bound to its addresses */
    bool bound;
    bool paced; /* there are several rails, so streams are paced (pace.c) */
    uint16_t port_first, port_last;
    int sndbuf, rcvbuf; /* 0: the kernel's choice */
    bool nodelay;
    int backlog;
    int64_t accept_ns, connect_ns;
    /* time after which an endpoint other than lane 0 fails if its bytes are not
     * acknowledged */
    int64_t rail_ns;
    size_t buffer_size;
} tcp_settings_t;

/* ---- the interface ---- */

/* An accepted socket whose hello is not complete. */
typedef struct tcp_caller {
    tcp_source_t source;
    tcp_iface_t *iface;
    psc_link_t link; /* in the interface's list `callers` or `vacant` */
    unsigned bucket; /* hash of the source address */
    int64_t deadline;
    size_t have;
    uint8_t hello[TCP_HELLO_SIZE];
} tcp_caller_t;

struct tcp_iface {
    psc_iface_t super;
    tcp_settings_t settings;
    int epoll_fd;
    tcp_source_t listener;
    tcp_source_t alarm; /* timer for deadlines and for immediate progress */
    int64_t alarm_at; /* TCP_NEVER if not set */
    unsigned n_places, n_callers; /* n_places: most callers at once */
    /* `callers` is listed oldest first. `vacant` has the structures of callers
     * that have gone; it is kept until the interface is freed, because epoll
     * may still report events of them. */
    psc_list_t callers, vacant;
    uint16_t n_from[TCP_BUCKETS];
    /* equal in processes that share our loopback addresses */
    uint64_t host_id;
    tcp_sockaddr_t addresses[TCP_ADDRESSES_MAX];
    unsigned n_addresses;
    /* path: index of this rail among those of this host; paths: their number */
    unsigned path, paths;
    unsigned rail; /* id of this rail, the same on both sides */
    psc_list_t connecting; /* endpoints that connect or are failing */
    psc_list_t settled; /* endpoints that are up, failed or closed */
    psc_list_t graveyard; /* endpoints to free when progress returns */
    unsigned n_holding; /* endpoints that hold bytes of completed sends */
    tcp_ep_t *hot; /* endpoint that received last; its socket is read first */
    unsigned streak; /* consecutive receives of `hot` */
    unsigned turns;
    unsigned handled; /* events handled in this call of progress */
    bool in_progress;
    /* the handlers of endpoints' sockets (connect.c) */
    void (*rx_ready)(tcp_source_t *source, uint32_t events);
    void (*tx_ready)(tcp_source_t *source, uint32_t events);
};

/* ---- endpoints ---- */

/* All stages: the name, and the handler of a readable or broken socket. */
#define TCP_STAGE_LIST(X)                                                      \
    X(NEW, none) /* created */                                                 \
    X(CALLED, lost) /* a caller arrived before ep_connect */                   \
    X(CONNECTING, none) /* connector: dialling addresses */                    \
    X(AWAIT_CALL, none) /* acceptor: no caller yet */                          \
    X(AWAIT_ANSWER, answered) /* acceptor: challenge is sent */                \
    X(UP, received) /* frames are exchanged */                                 \
    X(FAILING, none) /* progress will call ep_failed */                        \
    X(FAILED, none)                                                            \
    X(CLOSING, discarded) /* queued bytes are still being sent */              \
    X(CLOSED, none)

typedef enum tcp_stage {
#define TCP_STAGE_ENUM(name, handler) TCP_EP_##name,
    TCP_STAGE_LIST(TCP_STAGE_ENUM)
#undef TCP_STAGE_ENUM
        TCP_N_STAGES
} tcp_stage_t;

/* A zero-copy send: its pieces are sent after the bytes of the out-ring up to
 * `after`. */
typedef struct tcp_send {
    uint64_t after;
    struct iovec iov[TCP_IOV_MAX];
    unsigned n_iov, at; /* number of pieces; the first unfinished one */
    psc_comp_t *comp;
} tcp_send_t;

/* The queue of an endpoint: bytes and zero-copy sends, in order. Positions only
 * grow; a byte is stored at position % room. */
typedef struct tcp_out {
    uint8_t *ring;
    size_t room; /* a power of two */
    uint64_t head, tail;
    /* Bytes below this position belong to sends reported as complete. */
    uint64_t owed;
    bool holding; /* bytes of completed sends are still in the ring */
    tcp_send_t sends[TCP_SENDS_MAX];
    /* positions in `sends`: of the first send, and behind the last one */
    uint64_t first_send, last_send;
    bool finished; /* the stream takes no more bytes */
} tcp_out_t;

static inline bool tcp_out_empty(const tcp_out_t *out)
{
    return out->finished ||
           (out->head == out->tail && out->first_send == out->last_send);
}

typedef struct tcp_in {
    uint8_t *buffer; /* has TCP_READ_MAX bytes */
    size_t start, end;
    uint64_t header[PSC_AM_HEADER_MAX / 8];
    /* ---- a payload that is read directly into its destination ---- */
    /* bytes that are still missing; 0 if no payload is read directly */
    uint64_t body_left;
    psc_dest_t dest;
    /* the first piece that is not full, and its filled bytes */
    size_t dest_at, dest_offset;
    /* the last payload was long, so the next one probably is, too */
    bool long_ones;
    bool goodbye; /* the peer's goodbye has arrived */
} tcp_in_t;

/* One address of the peer, while it is dialled. */
typedef struct tcp_dial {
    tcp_source_t source; /* fd is -1 before and after the dial */
    tcp_ep_t *ep;
    bool greeted; /* our hello is sent */
    int64_t deadline; /* time until which connect() must succeed */
    psc_proof_t proof;
    size_t have;
    uint8_t challenge[TCP_CHALLENGE_SIZE];
} tcp_dial_t;

struct tcp_ep {
    psc_ep_t super;
    /* in `connecting`, `settled` or `graveyard` of the interface */
    psc_link_t link;
    tcp_stage_t stage;
    psc_role_t role;
    uint64_t id;
    tcp_source_t rx;
    tcp_source_t tx; /* has a socket only with PSC_ROLE_SELF */
    /* The socket is hot (it received last) and not in the epoll set; progress
     * reads it directly. */
    bool aside;
    /* TCP_NOTSENT_LOWAT of the socket, if there are several rails (pace.c) */
    int unsent;
    int64_t pace_at; /* time of the last measurement (pace.c) */
    uint64_t pace_acked; /* bytes acknowledged at pace_at */
    bool spare; /* not lane 0 of its connection; may fail early (rail.c) */
    /* time since which nothing was acknowledged; 0: nothing to acknowledge */
    int64_t silent_since;
    uint64_t rail_acked; /* bytes acknowledged at the last look (rail.c) */
    tcp_in_t in;
    tcp_out_t out;
    /* ---- used while the endpoint connects ---- */
    /* the acceptor's token proof; a connector has a proof for each dial */
    psc_proof_t proof;
    /* stage CALLED: nonce of the caller's hello */
    uint8_t caller_nonce[PSC_PROOF_NONCE_SIZE];
    uint64_t peer_id;
    bool same_host;
    tcp_sockaddr_t candidates[TCP_ADDRESSES_MAX];
    unsigned n_candidates, candidate; /* `candidate`: next one to be dialled */
    tcp_dial_t *dials; /* the connector's attempts, one for each candidate */
    bool greeted; /* one of the dials has sent its hello */
    int64_t deadline; /* time at which the next candidate is dialled */
    /* the candidates that failed, with the reasons */
    char tried[PSC_REASON_MAX];
    /* ---- used when the endpoint fails ---- */
    bool closed; /* ep_close was called; ep_failed is not called any more */
    psc_status_t status;
    char peer[64]; /* name of the peer for log lines */
    char reason[PSC_REASON_MAX];
};

static inline tcp_iface_t *tcp_ep_iface(const tcp_ep_t *ep)
{
    return (tcp_iface_t *)ep->super.iface;
}

PSC_OPERATIONS(tcp);

/* ---- listen.c ---- */

psc_status_t tcp_listener_open(tcp_iface_t *iface, char *reason);
/* closes the listener and drops its callers */
void tcp_listener_close(tcp_iface_t *iface);
/* Frees the structures of callers. Called when all callers have gone. */
void tcp_callers_free(tcp_iface_t *iface);
/* Drops callers whose time-out has expired. Returns the time of the next
 * check. */
int64_t tcp_listener_expire(tcp_iface_t *iface, int64_t now);

/* ---- connect.c ---- */

/* Called by progress when a caller's hello is complete. Takes ownership of
 * `fd`. */
void tcp_ep_take_call(tcp_iface_t *iface, int fd, const uint8_t *hello);
/* Called by progress: checks deadlines and reports failures. Returns the time
 * of the next check. */
int64_t tcp_connect_expire(tcp_iface_t *iface, int64_t now);
/* The handlers of an endpoint's sockets. */
void tcp_ep_ready(tcp_source_t *source, uint32_t events);
void tcp_ep_writable(tcp_source_t *source, uint32_t events);

/* ---- dial.c ---- */

/* Sends the first bytes on a stream. They always fit into its buffer, so false
 * means that the stream is broken. */
bool tcp_greeting_send(int fd, const void *bytes, size_t len);
/* Reads up to `size` bytes in all. Returns 1 if they are complete, 0 if more
 * bytes are needed, and -1 if the peer has hung up. */
int tcp_greeting_read(int fd, uint8_t *bytes, size_t *have, size_t size);
void tcp_dials_begin(tcp_ep_t *ep, const uint8_t *token);
/* Called by progress: dials the next address if one has not answered in time.
 * Returns the time of the next check of this endpoint. */
int64_t tcp_dials_expire(tcp_ep_t *ep, int64_t now);

/* ---- ep.c ---- */

void tcp_ep_free(tcp_ep_t *ep);
void tcp_dials_close(tcp_ep_t *ep);
void tcp_ep_name_peer(tcp_ep_t *ep);
/* Called by progress when the token is proved on the socket `rx`: the endpoint
 * enters UP. */
void tcp_ep_rise(tcp_ep_t *ep);
/* Called by progress: reports the failure with ep_failed. */
void tcp_ep_tell_failure(tcp_ep_t *ep);
/* Reads and discards bytes that arrive after our close. */
void tcp_ep_discard(tcp_ep_t *ep);

/* ---- receive.c ---- */

psc_status_t tcp_in_init(tcp_in_t *in);
void tcp_in_free(tcp_in_t *in);
/* Called by progress: one read, then delivery of all frames that it
 * completed. */
void tcp_stream_receive(tcp_ep_t *ep);

/* ---- send.c ---- */

psc_status_t tcp_out_init(tcp_out_t *out, size_t buffer_size);
void tcp_out_free(tcp_out_t *out);
/* Called by progress: sends what the socket accepts, and completes finished
 * sends. */
void tcp_out_flush(tcp_ep_t *ep);
/* Sends or queues the goodbye, which is the last frame. */
void tcp_out_goodbye(tcp_ep_t *ep);
/* Called by progress: completes all zero-copy sends in flight with an error. */
void tcp_out_cancel(tcp_ep_t *ep, psc_status_t status);
/* Called before the socket is closed: no more bytes are sent. */
void tcp_out_finish(tcp_ep_t *ep);

/* ---- pace.c ---- */

/* Called when a long message was sent: sets how many unsent bytes the kernel
 * takes of the next ones. */
void tcp_pace(tcp_ep_t *ep);

/* ---- rail.c ---- */

/* Called before every send. On a lane other than lane 0, sets the alarm, so
 * that progress checks whether the peer acknowledges the bytes. */
void tcp_rail_sends(const tcp_ep_t *ep);
/* Called by progress: fails endpoints of rails on which the peer acknowledges
 * nothing. Returns the time of the next check. */
int64_t tcp_rails_expire(tcp_iface_t *iface, int64_t now);

/* ---- stage.c ---- */

const char *tcp_stage_name(tcp_stage_t stage);
void tcp_ep_enter(tcp_ep_t *ep, tcp_stage_t stage);
/* May be called at any time. Records the reason; progress then calls
 * ep_failed. */
void tcp_ep_break(tcp_ep_t *ep, psc_status_t status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Watches the events that the stage and the out-queue need. Breaks the endpoint
 * if epoll fails. */
void tcp_ep_watch(tcp_ep_t *ep);
/* Makes `ep` the hot endpoint, whose socket is read first. Called after `ep`
 * has received; NULL: there is no hot endpoint any more. */
void tcp_hot_set(tcp_iface_t *iface, tcp_ep_t *ep);
/* Puts the hot endpoint's socket back into the epoll set. */
void tcp_hot_put_back(tcp_iface_t *iface);

/* ---- sleep.c ---- */

psc_status_t tcp_source_watch(tcp_iface_t *iface, tcp_source_t *source,
                              uint32_t events);
void tcp_source_close(tcp_iface_t *iface, tcp_source_t *source);
/* Ensures that progress is called and deadlines are checked at `when` or
 * earlier. */
void tcp_iface_wake_at(tcp_iface_t *iface, int64_t when);

/* ---- network.c ---- */

/* Chooses the addresses to listen on: fills the interface's `addresses` (with
 * port 0) and `host_id`. */
psc_status_t tcp_address_choose(tcp_iface_t *iface, char *reason);

/* ---- address.c ---- */

bool tcp_address_is_loopback(const tcp_sockaddr_t *address);
uint16_t tcp_address_port(const tcp_sockaddr_t *address);
void tcp_address_set_port(tcp_sockaddr_t *address, uint16_t port);
socklen_t tcp_address_len(const tcp_sockaddr_t *address);
/* Binds a socket of this family to the interface's address, without a port.
 * Returns false if the interface has none, or if that fails. */
bool tcp_address_bind(const tcp_iface_t *iface, int fd, sa_family_t family);
/* True if the local address of the socket is one of the interface's
 * addresses. */
bool tcp_address_ours(const tcp_iface_t *iface, int fd);
void tcp_address_print(const tcp_sockaddr_t *address, char *text, size_t room);
psc_status_t tcp_address_pack(const tcp_ep_t *ep, uint8_t *bytes,
                              size_t *len_p);
/* Reads the peer's endpoint address into peer_id, same_host and candidates.
 * Returns an error unless the bytes are exactly an address. */
psc_status_t tcp_address_unpack(tcp_ep_t *ep, const uint8_t *bytes, size_t len);

/* ---- settings.c ---- */

psc_status_t tcp_settings_read(const psc_open_params_t *params,
                               tcp_settings_t *settings_p);

void tcp_socket_tune(const tcp_settings_t *settings, int fd);
/* Selects the congestion control of a socket whose peer is on this host. */
void tcp_socket_tune_local(int fd);
