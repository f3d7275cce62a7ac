/* The objects of this transport: the interface, its endpoints, and the callers
 * (accepted sockets that have not named an endpoint); and what each C file
 * offers. From the top down:
 *
 *   transport   the operations table; opening, progress, the alarm
 *   listen      the listener, and callers that have not named an endpoint
 *   connect     the states in which an endpoint connects; the acceptor
 *   dial        the connector: dials the peer's addresses in parallel
 *   ep          endpoints: creating, failing, closing
 *   receive     receiving frames
 *   send        sending frames
 *   state       changes of state; watched events; the hot socket (polled first)
 *   pace        how many unsent bytes of a stream the kernel takes
 *   rail        fails a lane whose peer is silent, if there are other lanes
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

/* upper bound of callers (accepted sockets that have not named an endpoint) */
#define TCP_CALLERS_MAX 1024u
/* callers use at most one eighth of the descriptors of the process */
#define TCP_CALLERS_SHARE 8u
#define TCP_BUCKETS 256u /* buckets for counting callers by source address */
/* upper bound of queued zero-copy sends per endpoint */
#define TCP_SENDS_MAX 16u
/* upper bound of the pieces (psc_iov_t) of one message */
#define TCP_IOV_MAX 16u
/* upper bound of the bytes of header plus payload of am_short */
#define TCP_SHORT_MAX 512u
/* maximum number of events of the epoll set that one call of progress
 * handles */
#define TCP_EVENTS_MAX 16
#define TCP_ZCOPY_MAX ((size_t)1 << 62)
/* A payload up to this length is collected in the read buffer; a longer one is
 * read into its destination as soon as its header is known. */
#define TCP_WHOLE_MAX 2048u
/* Size of the read buffer. It has room for many short frames, but is small
 * compared with a long payload: the payload bytes that arrive in the buffer
 * must be copied once more. */
#define TCP_READ_MAX 16384u
/* With several rails, the limit of the unsent bytes that the kernel takes of a
 * stream is at least this (pace.c). */
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
    int fd; /* the descriptor; -1: there is none */
    uint32_t events; /* events that epoll watches; 0: not in the set */
};

/* ---- settings ---- */

typedef struct tcp_settings {
    /* valid during tcp_open only */
    const char *host, *network, *rails;
    /* the interface is a rail: its sockets are bound to the rail's addresses */
    bool bound;
    bool paced; /* there are several rails, so streams are paced (pace.c) */
    uint16_t port_first, port_last;
    /* sizes of the socket buffers; 0: the kernel chooses */
    int sndbuf, rcvbuf;
    bool nodelay;
    int backlog;
    int64_t accept_ns, connect_ns;
    /* time after which one of several lanes of a connection fails if its bytes
     * are not acknowledged */
    int64_t rail_ns;
    size_t buffer_size;
} tcp_settings_t;

/* ---- the interface ---- */

/* A caller: an accepted socket whose hello, which names an endpoint, is not
 * complete. */
typedef struct tcp_caller {
    tcp_source_t source;
    tcp_iface_t *iface;
    psc_link_t link; /* link in the interface's list `callers` or `vacant` */
    unsigned bucket; /* hash of the source address: index in n_from */
    int64_t deadline;
    size_t have;
    uint8_t hello[TCP_HELLO_SIZE];
} tcp_caller_t;

struct tcp_iface {
    psc_iface_t super;
    tcp_settings_t settings;
    int epoll_fd;
    tcp_source_t listener;
    tcp_source_t alarm; /* timer; wakes the core at the next deadline */
    int64_t alarm_at; /* time when the alarm expires; TCP_NEVER: not set */
    bool looks; /* the alarm is set for a check of spare endpoints (rail.c) */
    unsigned n_places, n_callers; /* n_places: upper bound of n_callers */
    /* `callers` has the oldest caller first. `vacant` has the structures of
     * callers that have gone; they are freed with the interface only, because
     * epoll may still report events of them. */
    psc_list_t callers, vacant;
    uint16_t n_from[TCP_BUCKETS];
    /* number of this host; equal in processes that share a loopback
     * interface */
    uint64_t host_id;
    tcp_sockaddr_t addresses[TCP_ADDRESSES_MAX];
    unsigned n_addresses;
    /* `path` is the index of this rail among the rails of this host, `paths`
     * the number of these rails */
    unsigned path, paths;
    unsigned rail; /* id of this interface's rail, the same on both sides */
    psc_list_t connecting; /* endpoints that connect or are failing */
    psc_list_t settled; /* endpoints that are up, failed or closed */
    psc_list_t graveyard; /* endpoints to free when progress returns */
    /* number of endpoints whose out-ring holds bytes of sends that were
     * reported as complete */
    unsigned n_holding;
    tcp_ep_t *hot; /* endpoint that received last; its socket is read first */
    unsigned streak; /* number of receives of `hot` in a row */
    unsigned turns;
    unsigned handled; /* number of events handled in this call of progress */
    bool in_progress;
    /* The handlers of the sockets `rx` and `tx` of endpoints (connect.c). */
    void (*rx_ready)(tcp_source_t *source, uint32_t events);
    void (*tx_ready)(tcp_source_t *source, uint32_t events);
};

/* ---- endpoints ---- */

/* All states: the name, and the handler of a readable or broken socket. */
#define TCP_STATE_LIST(X)                                                      \
    X(NEW, none) /* made by ep_create */                                       \
    X(CALLED, lost) /* a caller arrived before ep_connect */                   \
    X(CONNECTING, none) /* connector: dialling addresses */                    \
    X(AWAIT_CALL, none) /* acceptor: no caller yet */                          \
    X(AWAIT_ANSWER, answered) /* acceptor: challenge is sent */                \
    X(UP, received) /* frames are exchanged */                                 \
    X(FAILING, none) /* progress will call ep_failed */                        \
    X(FAILED, none)                                                            \
    X(CLOSING, discarded) /* queued bytes are still being sent */              \
    X(CLOSED, none)

typedef enum tcp_state {
#define TCP_STATE_ENUM(name, handler) TCP_EP_##name,
    TCP_STATE_LIST(TCP_STATE_ENUM)
#undef TCP_STATE_ENUM
        TCP_N_STATES
} tcp_state_t;

/* A zero-copy send. Its pieces are sent after those bytes of the out-ring that
 * stand before position `after`. */
typedef struct tcp_send {
    uint64_t after;
    struct iovec iov[TCP_IOV_MAX];
    /* n_iov: number of pieces; at: the first piece that is not sent
     * completely */
    unsigned n_iov, at;
    psc_comp_t *comp;
} tcp_send_t;

/* The bytes and zero-copy sends that an endpoint has still to send, in order.
 * Copied bytes are in the out-ring `ring`. The positions `head` (next byte to
 * send) and `tail` (end) only grow; a byte is stored at position % room. */
typedef struct tcp_out {
    uint8_t *ring;
    size_t room; /* size of `ring`, a power of two */
    uint64_t head, tail;
    /* Bytes below this position of the ring belong to sends that were reported
     * as complete. */
    uint64_t owed;
    /* the ring holds bytes of sends that were reported as complete */
    bool holding;
    tcp_send_t sends[TCP_SENDS_MAX];
    /* positions of the oldest send, and behind the newest one. Positions only
     * grow; a send is stored at position % TCP_SENDS_MAX. */
    uint64_t first_send, last_send;
    bool finished; /* no more bytes can be sent on the stream */
} tcp_out_t;

static inline bool tcp_out_empty(const tcp_out_t *out)
{
    return out->finished ||
           (out->head == out->tail && out->first_send == out->last_send);
}

typedef struct tcp_in {
    uint8_t *buffer; /* the read buffer, TCP_READ_MAX bytes */
    size_t start, end;
    uint64_t header[PSC_AM_HEADER_MAX / 8];
    /* ---- a payload that is read directly into its destination ---- */
    /* payload bytes that have not arrived; 0 if no payload is read directly */
    uint64_t body_left;
    psc_dest_t dest;
    /* dest_at: the first piece of `dest` that is not full; dest_offset: the
     * bytes of this piece that are filled */
    size_t dest_at, dest_offset;
    /* the last payload was long, so the next one is probably long, too */
    bool long_ones;
    bool goodbye; /* the peer's goodbye (its last frame) has arrived */
} tcp_in_t;

/* An attempt to connect to one address of the peer. */
typedef struct tcp_dial {
    tcp_source_t source; /* fd is -1 unless the attempt is in progress */
    tcp_ep_t *ep;
    bool greeted; /* the hello is sent on this connection */
    int64_t deadline; /* time until which connect() must succeed */
    psc_proof_t proof;
    size_t have;
    uint8_t challenge[TCP_CHALLENGE_SIZE];
} tcp_dial_t;

struct tcp_ep {
    psc_ep_t super;
    /* the list is `connecting`, `settled` or `graveyard` of the interface */
    psc_link_t link;
    tcp_state_t state;
    psc_role_t role;
    uint64_t id;
    tcp_source_t rx;
    /* second socket of an endpoint with PSC_ROLE_SELF; else none */
    tcp_source_t tx;
    /* The socket is hot (it received last) and not in the epoll set; progress
     * reads it directly. */
    bool aside;
    /* TCP_NOTSENT_LOWAT of the socket, if there are several rails (pace.c) */
    int unsent;
    int64_t pace_at; /* time of the last measurement (pace.c) */
    uint64_t pace_acked; /* bytes that the peer had acknowledged at pace_at */
    /* the connection may go on without this lane (rail.c) */
    bool spare;
    /* longest message that am_short sends without another check; 0 for a spare
     * endpoint, for whose messages the alarm may have to be set */
    size_t short_max;
    /* time since which the peer has acknowledged nothing; 0: all bytes that
     * were sent are acknowledged */
    int64_t silent_since;
    /* bytes that the peer had acknowledged at the last check (rail.c) */
    uint64_t rail_acked;
    tcp_in_t in;
    tcp_out_t out;
    /* ---- used while the endpoint connects ---- */
    /* The acceptor's proof that both sides know the token; a connector has one
     * proof in each dial. */
    psc_proof_t proof;
    /* In state CALLED: the nonce from the hello of the caller. */
    uint8_t caller_nonce[PSC_PROOF_NONCE_SIZE];
    uint64_t peer_id;
    bool same_host;
    tcp_sockaddr_t candidates[TCP_ADDRESSES_MAX];
    /* `candidate` is the index of the next address to be dialled */
    unsigned n_candidates, candidate;
    /* one per candidate: the connector's attempts to connect */
    tcp_dial_t *dials;
    bool greeted; /* at least one of the dials has sent its hello */
    int64_t deadline; /* time at which the next candidate is dialled */
    /* text that names the candidates that failed, with the reasons */
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
/* Closes the listener and drops its callers. */
void tcp_listener_close(tcp_iface_t *iface);
/* Frees the structures in `vacant`. Called when all callers have gone. */
void tcp_callers_free(tcp_iface_t *iface);
/* Drops callers whose time-out has expired. Returns the time at which the
 * function must be called again. */
int64_t tcp_listener_expire(tcp_iface_t *iface, int64_t now);

/* ---- connect.c ---- */

/* Called by progress when the hello of an accepted stream is complete. Takes
 * ownership of the socket `fd`. */
void tcp_ep_take_call(tcp_iface_t *iface, int fd, const uint8_t *hello);
/* Called by progress: checks the deadlines of connecting endpoints and reports
 * failures. Returns the time at which the function must be called again. */
int64_t tcp_connect_expire(tcp_iface_t *iface, int64_t now);
/* The handlers of the sockets `rx` and `tx` of an endpoint. */
void tcp_ep_ready(tcp_source_t *source, uint32_t events);
void tcp_ep_writable(tcp_source_t *source, uint32_t events);

/* ---- dial.c ---- */

/* Sends a hello, challenge or answer, the first bytes on a stream. They always
 * fit into the socket's buffer, so false means that the stream is broken. */
bool tcp_greeting_send(int fd, const void *bytes, size_t len);
/* Reads bytes until *have is `size`. Returns 1 if all bytes have arrived, 0 if
 * bytes are still missing, and -1 if the peer has hung up. */
int tcp_greeting_read(int fd, uint8_t *bytes, size_t *have, size_t size);
void tcp_dials_begin(tcp_ep_t *ep, const uint8_t *token);
/* Called by progress: dials the peer's next address if the one before has not
 * answered in time. Returns the time at which the function must be called again
 * for the endpoint. */
int64_t tcp_dials_expire(tcp_ep_t *ep, int64_t now);

/* ---- ep.c ---- */

void tcp_ep_free(tcp_ep_t *ep);
void tcp_dials_close(tcp_ep_t *ep);
void tcp_ep_name_peer(tcp_ep_t *ep);
/* Called by progress when both sides have proved on the socket `rx` that they
 * know the token: the endpoint enters the state UP. */
void tcp_ep_rise(tcp_ep_t *ep);
/* Called by progress: reports the failure of the endpoint with ep_failed. */
void tcp_ep_report_failure(tcp_ep_t *ep);
/* Reads and discards bytes that arrive after the endpoint was closed. */
void tcp_ep_discard(tcp_ep_t *ep);

/* ---- receive.c ---- */

psc_status_t tcp_in_init(tcp_in_t *in);
void tcp_in_free(tcp_in_t *in);
/* Called by progress: makes one read and delivers all frames that are complete
 * then. */
void tcp_stream_receive(tcp_ep_t *ep);

/* ---- send.c ---- */

psc_status_t tcp_out_init(tcp_out_t *out, size_t buffer_size);
void tcp_out_free(tcp_out_t *out);
/* Called by progress: sends queued bytes that the socket accepts, and completes
 * the zero-copy sends whose last byte was sent. */
void tcp_out_flush(tcp_ep_t *ep);
/* Sends or queues the goodbye, the frame that ends the stream. */
void tcp_out_goodbye(tcp_ep_t *ep);
/* Called by progress: completes all queued zero-copy sends with the error
 * `status`. */
void tcp_out_cancel(tcp_ep_t *ep, psc_status_t status);
/* Called before the socket is closed: marks the queue so that no more bytes are
 * sent. */
void tcp_out_finish(tcp_ep_t *ep);

/* ---- pace.c ---- */

/* Called when a long message was sent: sets how many unsent bytes the kernel
 * takes of the next messages. */
void tcp_pace(tcp_ep_t *ep);

/* ---- rail.c ---- */

/* Called before every send. If the endpoint is one of several lanes of a
 * connection, sets the alarm, so that progress checks whether the peer
 * acknowledges the bytes. */
void tcp_rail_sends(tcp_ep_t *ep);
/* Called by progress: fails spare endpoints (rail.c) whose peer acknowledges
 * nothing. Returns the time at which the function must be called again. */
int64_t tcp_rails_expire(tcp_iface_t *iface, int64_t now);

/* ---- state.c ---- */

void tcp_ep_enter(tcp_ep_t *ep, tcp_state_t state);
/* Begins the failure of an endpoint; may be called at any time. Records the
 * reason; progress then calls ep_failed. */
void tcp_ep_break(tcp_ep_t *ep, psc_status_t status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Watches the socket events that the state and the queue `out` require. Fails
 * the endpoint if epoll_ctl fails. */
void tcp_ep_watch(tcp_ep_t *ep);
/* Makes `ep` the hot endpoint, whose socket is read first. Called after `ep`
 * has received. If `ep` is NULL, there is no hot endpoint any more. */
void tcp_hot_set(tcp_iface_t *iface, tcp_ep_t *ep);
/* Puts the socket of the hot endpoint (the one that received last) back into
 * the epoll set. */
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

uint16_t tcp_address_port(const tcp_sockaddr_t *address);
void tcp_address_set_port(tcp_sockaddr_t *address, uint16_t port);
socklen_t tcp_address_len(const tcp_sockaddr_t *address);
/* Binds a socket of this family to the interface's address of the family,
 * without a port. Returns false if the interface has no such address, or if
 * bind() fails. */
bool tcp_address_bind(const tcp_iface_t *iface, int fd, sa_family_t family);
/* Returns true if the local address of the socket is one of the interface's
 * addresses. */
bool tcp_address_ours(const tcp_iface_t *iface, int fd);
void tcp_address_print(const tcp_sockaddr_t *address, char *text, size_t room);
psc_status_t tcp_address_pack(const tcp_ep_t *ep, uint8_t *bytes,
                              size_t *len_p);
/* Reads the peer's endpoint address into ep->peer_id, same_host and candidates.
 * Returns an error unless the bytes are exactly one endpoint address. */
psc_status_t tcp_address_unpack(tcp_ep_t *ep, const uint8_t *bytes, size_t len);

/* ---- settings.c ---- */

psc_status_t tcp_settings_read(const psc_open_params_t *params,
                               tcp_settings_t *settings_p);

void tcp_socket_tune(const tcp_settings_t *settings, int fd);
/* Selects the congestion control of a socket whose peer is on this host. */
void tcp_socket_tune_local(int fd);
