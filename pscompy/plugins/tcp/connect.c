/* How endpoints come up.
 *
 * The connector dials the peer's addresses in order, names the peer's endpoint
 * in its hello, and is challenged; each side proves with the challenge's
 * nonces that it holds the lane's token, the acceptor first. Who has called
 * but not named an endpoint is a caller: few of them, and not for long. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/random.h>
#include <unistd.h>

#include "pscompy/core/parts/clock.h"
#include "tcp.h"

static tcp_iface_t *tcp_ep_iface(const tcp_ep_t *ep)
{
    return (tcp_iface_t *)ep->super.iface;
}

/* ---- small tools ---- */

/* A few bytes on a fresh stream: there is room, or the stream is broken. */
static bool tcp_greeting_send(tcp_ep_t *ep, const void *bytes, size_t len)
{
    return send(ep->rx.fd, bytes, len, MSG_NOSIGNAL) == (ssize_t)len;
}

/* Reads up to `size` bytes in all: 1 complete, 0 not yet, -1 hung up. */
static int tcp_greeting_read(int fd, uint8_t *bytes, size_t *have, size_t size)
{
    ssize_t n = recv(fd, bytes + *have, size - *have, 0);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0)
        return -1;
    *have += (size_t)n;
    return *have == size;
}

static void tcp_ep_name_peer(tcp_ep_t *ep)
{
    tcp_sockaddr_t address = {0};
    socklen_t len = sizeof(address);

    if (getpeername(ep->rx.fd, &address.any, &len) == 0)
        tcp_address_print(&address, ep->peer, sizeof(ep->peer));
}

static void tcp_ep_rise(tcp_ep_t *ep)
{
    tcp_iface_t *iface = tcp_ep_iface(ep);

    explicit_bzero(ep->token, sizeof(ep->token));
    if (ep->same_host)
        tcp_socket_tune_local(ep->rx.fd);
    ep->in.start = ep->in.end = 0;
    tcp_ep_enter(ep, TCP_EP_UP);
    iface->handled++;
    if (ep->stage == TCP_EP_UP)
        iface->super.up->ep_up(&ep->super);
}

static void tcp_ep_prove(const tcp_ep_t *ep, char role, uint64_t id,
                         uint8_t proof_p[TCP_PROOF_SIZE])
{
    tcp_proof_make(ep->token, role, id, ep->nonce[0], ep->nonce[1], proof_p);
}

static bool tcp_nonce_make(uint8_t nonce_p[TCP_NONCE_SIZE])
{
    return getrandom(nonce_p, TCP_NONCE_SIZE, 0) == TCP_NONCE_SIZE;
}

/* ---- the connector ---- */

/* Why the present candidate falls; the next one is then tried. */
static void tcp_candidate_drop(tcp_ep_t *ep, const char *why)
{
    size_t used = strlen(ep->tried);
    char name[64];

    tcp_address_print(&ep->candidates[ep->candidate], name, sizeof(name));
    snprintf(ep->tried + used, sizeof(ep->tried) - used, "%s%s: %s",
             used > 0 ? "; " : "", name, why);
    tcp_source_close(tcp_ep_iface(ep), &ep->rx);
    ep->candidate++;
}

static bool tcp_candidate_dial(tcp_ep_t *ep)
{
    tcp_iface_t *iface = tcp_ep_iface(ep);
    const tcp_sockaddr_t *to = &ep->candidates[ep->candidate];

    ep->rx.fd = socket(to->any.sa_family,
                       SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (ep->rx.fd < 0)
        return false;
    tcp_socket_tune(&iface->settings, ep->rx.fd);
    if (connect(ep->rx.fd, &to->any, tcp_address_len(to)) < 0 &&
        errno != EINPROGRESS)
        return false;
    ep->deadline = psc_clock_deadline(iface->settings.connect_ns);
    tcp_ep_enter(ep, TCP_EP_CONNECTING);
    tcp_iface_wake_at(iface, ep->deadline);
    return true;
}

static void tcp_connect_next(tcp_ep_t *ep)
{
    while (ep->candidate < ep->n_candidates) {
        if (tcp_candidate_dial(ep))
            return;
        tcp_candidate_drop(ep, strerror(errno));
    }
    if (ep->n_candidates == 0)
        tcp_ep_break(ep, PSC_ERR_CONNECT,
                     "the peer offers no address outside its own host");
    else
        tcp_ep_break(ep, PSC_ERR_CONNECT, "%s", ep->tried);
}

static void tcp_candidate_fall(tcp_ep_t *ep, const char *why)
{
    tcp_candidate_drop(ep, why);
    tcp_connect_next(ep);
}

/* CONNECTING: the kernel has connected, or gave up. */
static void tcp_stage_dialled(tcp_ep_t *ep)
{
    uint8_t hello[TCP_HELLO_SIZE];
    int error = 0;
    socklen_t len = sizeof(error);

    getsockopt(ep->rx.fd, SOL_SOCKET, SO_ERROR, &error, &len);
    if (error == 0 && !tcp_nonce_make(ep->nonce[0]))
        error = errno;
    if (error != 0) {
        tcp_candidate_fall(ep, strerror(error));
        return;
    }
    tcp_wire_store64(hello, TCP_HELLO_MAGIC);
    tcp_wire_store64(hello + 8, ep->peer_id);
    memcpy(hello + 16, ep->nonce[0], TCP_NONCE_SIZE);
    if (tcp_greeting_send(ep, hello, sizeof(hello))) {
        ep->in.end = 0;
        tcp_ep_enter(ep, TCP_EP_AWAIT_CHALLENGE);
    } else if (errno != EAGAIN) { /* else it was news of an earlier socket */
        tcp_candidate_fall(ep, strerror(errno));
    }
}

/* AWAIT_CHALLENGE: the acceptor proves itself and asks us to. */
static void tcp_stage_challenged(tcp_ep_t *ep)
{
    uint8_t *challenge = ep->in.buffer, proof[TCP_PROOF_SIZE];
    int got = tcp_greeting_read(ep->rx.fd, challenge, &ep->in.end,
                                TCP_CHALLENGE_SIZE);

    if (got == 0)
        return;
    if (got < 0 || tcp_wire_load64(challenge) != TCP_CHALLENGE_MAGIC) {
        tcp_candidate_fall(ep, got < 0 ? "hung up, it knows no such endpoint"
                                       : "speaks another protocol");
        return;
    }
    memcpy(ep->nonce[1], challenge + 8, TCP_NONCE_SIZE);
    tcp_ep_name_peer(ep);
    tcp_ep_prove(ep, 'a', ep->peer_id, proof);
    if (!psc_siphash_equal(proof, challenge + 8 + TCP_NONCE_SIZE)) {
        tcp_ep_break(ep, PSC_ERR_CONNECT,
                     "%s does not hold this connection's token", ep->peer);
        return;
    }
    tcp_ep_prove(ep, 'c', ep->peer_id, proof);
    if (tcp_greeting_send(ep, proof, sizeof(proof)))
        tcp_ep_rise(ep);
    else
        tcp_candidate_fall(ep, strerror(errno));
}

/* ---- the acceptor ---- */

static void tcp_ep_challenge(tcp_ep_t *ep)
{
    uint8_t challenge[TCP_CHALLENGE_SIZE];

    if (!tcp_nonce_make(ep->nonce[1])) {
        tcp_ep_break(ep, PSC_ERR_TRANSPORT, "no random bytes");
        return;
    }
    tcp_wire_store64(challenge, TCP_CHALLENGE_MAGIC);
    memcpy(challenge + 8, ep->nonce[1], TCP_NONCE_SIZE);
    tcp_ep_prove(ep, 'a', ep->id, challenge + 8 + TCP_NONCE_SIZE);
    if (!tcp_greeting_send(ep, challenge, sizeof(challenge))) {
        tcp_ep_break(ep, PSC_ERR_CONNECT, "%s hung up", ep->peer);
        return;
    }
    ep->in.end = 0;
    tcp_ep_enter(ep, TCP_EP_AWAIT_PROOF);
}

/* CALLED: before our challenge the caller has nothing to say. */
static void tcp_stage_lost(tcp_ep_t *ep)
{
    tcp_source_close(tcp_ep_iface(ep), &ep->rx);
    tcp_ep_enter(ep, TCP_EP_NEW);
}

/* AWAIT_PROOF: what comes after the proof stays in the socket. */
static void tcp_stage_proved(tcp_ep_t *ep)
{
    uint8_t proof[TCP_PROOF_SIZE];
    int got = tcp_greeting_read(ep->rx.fd, ep->in.buffer, &ep->in.end,
                                TCP_PROOF_SIZE);

    if (got == 0)
        return;
    tcp_ep_prove(ep, 'c', ep->id, proof);
    if (got < 0)
        tcp_ep_break(ep, PSC_ERR_CONNECT,
                     "%s hung up instead of proving that it holds this "
                     "connection's token",
                     ep->peer);
    else if (!psc_siphash_equal(proof, ep->in.buffer))
        tcp_ep_break(ep, PSC_ERR_CONNECT,
                     "%s does not hold this connection's token", ep->peer);
    else
        tcp_ep_rise(ep);
}

/* The endpoint that a hello names, if it still waits for a caller. */
static tcp_ep_t *tcp_ep_find(tcp_iface_t *iface, uint64_t id)
{
    psc_list_for_each (ep, &iface->connecting, tcp_ep_t, link) {
        if (ep->id == id &&
            (ep->stage == TCP_EP_NEW || ep->stage == TCP_EP_AWAIT_CALL))
            return ep;
    }
    return NULL;
}

void tcp_ep_take_call(tcp_iface_t *iface, int fd, const uint8_t *hello)
{
    tcp_ep_t *ep = tcp_ep_find(iface, tcp_wire_load64(hello + 8));

    if (!ep) {
        close(fd); /* closed meanwhile, called twice, or a guess */
        return;
    }
    ep->rx.fd = fd;
    memcpy(ep->nonce[0], hello + 16, TCP_NONCE_SIZE);
    tcp_ep_name_peer(ep);
    if (ep->stage == TCP_EP_NEW)
        tcp_ep_enter(ep, TCP_EP_CALLED);
    else
        tcp_ep_challenge(ep);
    if (ep->stage == TCP_EP_FAILING)
        tcp_ep_tell_failure(ep);
}

/* ---- stages ---- */

static void tcp_stage_none(tcp_ep_t *ep)
{
    (void)ep;
}

static void tcp_stage_received(tcp_ep_t *ep)
{
    tcp_stream_receive(ep);
}

static void tcp_stage_discarded(tcp_ep_t *ep)
{
    tcp_stream_discard(ep);
}

void tcp_ep_ready(tcp_source_t *source, uint32_t events)
{
    static void (*const handlers[TCP_N_STAGES])(tcp_ep_t *) = {
#define TCP_STAGE_HANDLER(name, handler) tcp_stage_##handler,
        TCP_STAGE_LIST(TCP_STAGE_HANDLER)
#undef TCP_STAGE_HANDLER
    };
    tcp_ep_t *ep = psc_container_of(source, tcp_ep_t, rx);

    if (events & EPOLLOUT && ep->stage != TCP_EP_CONNECTING)
        tcp_out_flush(ep);
    if (events & ~EPOLLOUT || ep->stage == TCP_EP_CONNECTING)
        handlers[ep->stage](ep);
    if (ep->stage == TCP_EP_FAILING)
        tcp_ep_tell_failure(ep);
}

/* The second socket of an endpoint that is connected to itself. */
void tcp_ep_writable(tcp_source_t *source, uint32_t events)
{
    tcp_ep_t *ep = psc_container_of(source, tcp_ep_t, tx);

    (void)events;
    tcp_out_flush(ep);
    if (ep->stage == TCP_EP_FAILING)
        tcp_ep_tell_failure(ep);
}

/* ---- connect ---- */

static psc_status_t tcp_connect_self(tcp_ep_t *ep)
{
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0,
                   ends) < 0)
        return PSC_ERR_TRANSPORT;
    ep->rx.fd = ends[0];
    ep->tx.fd = ends[1];
    snprintf(ep->peer, sizeof(ep->peer), "itself");
    tcp_ep_enter(ep, TCP_EP_UP);
    return PSC_OK;
}

psc_status_t tcp_ep_connect(psc_ep_t *self, const psc_connect_params_t *params)
{
    tcp_ep_t *ep = (tcp_ep_t *)self;
    bool called = ep->stage == TCP_EP_CALLED;

    if (ep->stage != TCP_EP_NEW && !called)
        return PSC_ERR_INVALID;
    ep->role = params->role;
    memcpy(ep->token, params->token, sizeof(ep->token));
    if (called && ep->role != PSC_ROLE_ACCEPTOR)
        tcp_stage_lost(ep);
    if (ep->role == PSC_ROLE_SELF)
        return tcp_connect_self(ep);
    if (tcp_address_unpack(ep, params->address, params->address_len) != PSC_OK)
        tcp_ep_break(ep, PSC_ERR_PROTOCOL, "the peer's address is damaged");
    else if (ep->role == PSC_ROLE_CONNECTOR)
        tcp_connect_next(ep);
    else if (called)
        tcp_ep_challenge(ep);
    else
        tcp_ep_enter(ep, TCP_EP_AWAIT_CALL);
    return PSC_INPROGRESS;
}

/* ---- time ---- */

static bool tcp_ep_is_due(const tcp_ep_t *ep, int64_t now)
{
    struct pollfd fd = {.fd = ep->rx.fd, .events = POLLOUT};

    return ep->stage == TCP_EP_CONNECTING && ep->deadline <= now &&
           poll(&fd, 1, 0) == 0;
}

static tcp_ep_t *tcp_ep_find_failing(tcp_iface_t *iface)
{
    psc_list_for_each (ep, &iface->connecting, tcp_ep_t, link) {
        if (ep->stage == TCP_EP_FAILING)
            return ep;
    }
    return NULL;
}

int64_t tcp_connect_expire(tcp_iface_t *iface, int64_t now)
{
    int64_t next = TCP_NEVER;
    tcp_ep_t *failing;

    psc_list_for_each (ep, &iface->connecting, tcp_ep_t, link) {
        if (tcp_ep_is_due(ep, now))
            tcp_candidate_fall(ep, "no answer (PSP_TCP_CONNECT_TIMEOUT)");
        else if (ep->stage == TCP_EP_CONNECTING && ep->deadline > now)
            next = ep->deadline < next ? ep->deadline : next;
    }
    /* one at a time: who is told may change the list */
    while ((failing = tcp_ep_find_failing(iface)))
        tcp_ep_tell_failure(failing);
    return next;
}
