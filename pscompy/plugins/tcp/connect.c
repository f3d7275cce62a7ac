/* How endpoints come up.
 *
 * The connector dials the peer's addresses, names the peer's endpoint in its
 * hello, and is challenged; each side proves with the challenge's nonces that
 * it holds the lane's token, the acceptor first. Who has called but not named
 * an endpoint is a caller: few of them, and not for long.
 *
 * Some of the addresses may lead nowhere from here, or to another process: a
 * bridge has the same one on many hosts. So they are dialled side by side, as
 * happy eyeballs do (RFC 8305): the next one when one has failed, or has not
 * answered for a moment. The acceptor takes the first call that names its
 * endpoint and hangs up on the others, so exactly one of them is challenged. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "pscompy/transport/kit/clock.h"
#include "tcp.h"

/* Before the next address is dialled too; the longer one once somebody has
 * taken our hello, who may just be busy. */
#define TCP_DIAL_DELAY_NS 250000000
#define TCP_DIAL_PATIENCE_NS 2000000000

static tcp_iface_t *tcp_ep_iface(const tcp_ep_t *ep)
{
    return (tcp_iface_t *)ep->super.iface;
}

/* ---- small tools ---- */

/* A few bytes on a fresh stream: there is room, or the stream is broken. */
static bool tcp_greeting_send(int fd, const void *bytes, size_t len)
{
    return send(fd, bytes, len, MSG_NOSIGNAL) == (ssize_t)len;
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

    if (ep->same_host)
        tcp_socket_tune_local(ep->rx.fd);
    ep->in.start = ep->in.end = 0;
    tcp_ep_enter(ep, TCP_EP_UP);
    iface->handled++;
    if (ep->stage == TCP_EP_UP)
        iface->super.up->ep_up(&ep->super);
}

/* ---- the connector ---- */

static bool tcp_dial_open(const tcp_dial_t *dial)
{
    return dial->source.fd >= 0;
}

static bool tcp_dials_open(const tcp_ep_t *ep)
{
    for (unsigned i = 0; i < ep->n_candidates; i++) {
        if (tcp_dial_open(&ep->dials[i]))
            return true;
    }
    return false;
}

void tcp_dials_close(tcp_ep_t *ep)
{
    for (unsigned i = 0; ep->dials && i < ep->n_candidates; i++) {
        tcp_source_close(tcp_ep_iface(ep), &ep->dials[i].source);
        psc_proof_wipe(&ep->dials[i].proof);
    }
}

static void tcp_dial_name(const tcp_dial_t *dial, char *name, size_t room)
{
    tcp_address_print(&dial->ep->candidates[dial - dial->ep->dials], name,
                      room);
}

/* Why an address falls. */
static void tcp_dial_drop(tcp_dial_t *dial, const char *why)
{
    tcp_ep_t *ep = dial->ep;
    size_t used = strlen(ep->tried);
    char name[64];

    tcp_dial_name(dial, name, sizeof(name));
    snprintf(ep->tried + used, sizeof(ep->tried) - used, "%s%s: %s",
             used > 0 ? "; " : "", name, why);
    tcp_source_close(tcp_ep_iface(ep), &dial->source);
    psc_proof_wipe(&dial->proof);
}

static bool tcp_dial_begin(tcp_dial_t *dial)
{
    tcp_ep_t *ep = dial->ep;
    tcp_iface_t *iface = tcp_ep_iface(ep);
    const tcp_sockaddr_t *to = &ep->candidates[dial - ep->dials];
    int fd = socket(to->any.sa_family,
                    SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    dial->source.fd = fd;
    if (fd < 0)
        return false;
    tcp_socket_tune(&iface->settings, fd);
    if (connect(fd, &to->any, tcp_address_len(to)) < 0 && errno != EINPROGRESS)
        return false;
    if (tcp_source_watch(iface, &dial->source, EPOLLOUT) != PSC_OK)
        return false;
    dial->deadline = psc_clock_deadline(iface->settings.connect_ns);
    tcp_iface_wake_at(iface, dial->deadline);
    return true;
}

/* Dials the next address; the one after it follows soon. */
static void tcp_connect_next(tcp_ep_t *ep)
{
    bool begun = false;

    while (!begun && ep->candidate < ep->n_candidates) {
        tcp_dial_t *dial = &ep->dials[ep->candidate++];

        begun = tcp_dial_begin(dial);
        if (!begun)
            tcp_dial_drop(dial, strerror(errno));
    }
    ep->deadline = TCP_NEVER;
    if (ep->candidate < ep->n_candidates) {
        ep->deadline = psc_clock_deadline(ep->greeted ? TCP_DIAL_PATIENCE_NS
                                                      : TCP_DIAL_DELAY_NS);
        tcp_iface_wake_at(tcp_ep_iface(ep), ep->deadline);
    } else if (ep->n_candidates == 0) {
        tcp_ep_break(ep, PSC_ERR_CONNECT,
                     "the peer offers no address outside its own host");
    } else if (!tcp_dials_open(ep)) {
        tcp_ep_break(ep, PSC_ERR_CONNECT, "%s", ep->tried);
    }
}

static void tcp_dial_fall(tcp_dial_t *dial, const char *why)
{
    tcp_dial_drop(dial, why);
    tcp_connect_next(dial->ep);
}

/* The kernel has connected, or gave up. */
static void tcp_dial_greet(tcp_dial_t *dial)
{
    tcp_ep_t *ep = dial->ep;
    uint8_t hello[TCP_HELLO_SIZE];
    int error = 0;
    socklen_t len = sizeof(error);

    getsockopt(dial->source.fd, SOL_SOCKET, SO_ERROR, &error, &len);
    if (error != 0) {
        tcp_dial_fall(dial, strerror(error));
        return;
    }
    tcp_wire_store64(hello, TCP_HELLO_MAGIC);
    tcp_wire_store64(hello + 8, ep->peer_id);
    memcpy(hello + 16, psc_proof_hello(&dial->proof), PSC_PROOF_NONCE_SIZE);
    if (!tcp_greeting_send(dial->source.fd, hello, sizeof(hello)) ||
        tcp_source_watch(tcp_ep_iface(ep), &dial->source, EPOLLIN) != PSC_OK) {
        tcp_dial_fall(dial, strerror(errno));
        return;
    }
    dial->greeted = ep->greeted = true;
    if (ep->candidate < ep->n_candidates)
        ep->deadline = psc_clock_deadline(TCP_DIAL_PATIENCE_NS);
}

/* This stream is the lane's; the others are not needed. */
static void tcp_dial_win(tcp_dial_t *dial)
{
    tcp_ep_t *ep = dial->ep;
    int fd = dial->source.fd;

    (void)tcp_source_watch(tcp_ep_iface(ep), &dial->source, 0);
    dial->source.fd = -1;
    tcp_dials_close(ep);
    ep->rx.fd = fd;
    tcp_ep_name_peer(ep);
    tcp_ep_rise(ep);
}

/* The acceptor proves itself and asks us to. */
static void tcp_dial_challenged(tcp_dial_t *dial)
{
    uint8_t *challenge = dial->challenge;
    psc_proof_reply_t reply;
    int got = tcp_greeting_read(dial->source.fd, challenge, &dial->have,
                                TCP_CHALLENGE_SIZE);

    if (got == 0)
        return;
    if (got < 0 || tcp_wire_load64(challenge) != TCP_CHALLENGE_MAGIC) {
        tcp_dial_fall(dial, got < 0 ? "hung up, it knows no such endpoint"
                                    : "speaks another protocol");
        return;
    }
    psc_proof_receive(&dial->proof, PSC_PROOF_CHALLENGE, challenge + 8,
                      PSC_PROOF_CHALLENGE_SIZE, &reply);
    if (reply.verdict != PSC_PROOF_ACCEPTED)
        tcp_dial_fall(dial, reply.why);
    else if (tcp_greeting_send(dial->source.fd, reply.body, reply.len))
        tcp_dial_win(dial);
    else
        tcp_dial_fall(dial, strerror(errno));
}

static void tcp_dial_ready(tcp_source_t *source, uint32_t events)
{
    tcp_dial_t *dial = psc_container_of(source, tcp_dial_t, source);

    (void)events;
    if (!tcp_dial_open(dial))
        return; /* another one won, or ended it, in the same pass */
    if (dial->greeted)
        tcp_dial_challenged(dial);
    else
        tcp_dial_greet(dial);
    if (dial->ep->stage == TCP_EP_FAILING)
        tcp_ep_tell_failure(dial->ep);
}

static void tcp_connect_begin(tcp_ep_t *ep, const uint8_t *token)
{
    ep->dials = calloc(ep->n_candidates + 1, sizeof(*ep->dials));
    if (!ep->dials) {
        tcp_ep_break(ep, PSC_ERR_NO_MEMORY, "no memory for its addresses");
        return;
    }
    for (unsigned i = 0; i < ep->n_candidates; i++)
        ep->dials[i] = (tcp_dial_t){
            .source = {.ready = tcp_dial_ready, .fd = -1}, .ep = ep};
    for (unsigned i = 0; i < ep->n_candidates; i++) {
        if (!psc_proof_begin(&ep->dials[i].proof, ep->role, token, ep->id,
                             ep->peer_id)) {
            tcp_ep_break(ep, PSC_ERR_TRANSPORT, "no random bytes");
            return;
        }
    }
    tcp_ep_enter(ep, TCP_EP_CONNECTING);
    tcp_connect_next(ep);
}

/* ---- the acceptor ---- */

static void tcp_ep_challenge(tcp_ep_t *ep)
{
    uint8_t challenge[TCP_CHALLENGE_SIZE];
    psc_proof_reply_t reply;

    psc_proof_receive(&ep->proof, PSC_PROOF_HELLO, ep->caller_nonce,
                      PSC_PROOF_NONCE_SIZE, &reply);
    tcp_wire_store64(challenge, TCP_CHALLENGE_MAGIC);
    memcpy(challenge + 8, reply.body, reply.len);
    if (!tcp_greeting_send(ep->rx.fd, challenge, sizeof(challenge))) {
        tcp_ep_break(ep, PSC_ERR_CONNECT, "%s hung up", ep->peer);
        return;
    }
    ep->in.end = 0;
    tcp_ep_enter(ep, TCP_EP_AWAIT_ANSWER);
}

/* CALLED: before our challenge the caller has nothing to say. */
static void tcp_stage_lost(tcp_ep_t *ep)
{
    tcp_source_close(tcp_ep_iface(ep), &ep->rx);
    tcp_ep_enter(ep, TCP_EP_NEW);
}

/* AWAIT_ANSWER: bytes that follow the answer stay in the socket. */
static void tcp_stage_answered(tcp_ep_t *ep)
{
    psc_proof_reply_t reply;
    int got = tcp_greeting_read(ep->rx.fd, ep->in.buffer, &ep->in.end,
                                PSC_PROOF_SIZE);

    if (got == 0)
        return;
    if (got < 0) {
        tcp_ep_break(ep, PSC_ERR_CONNECT,
                     "%s hung up instead of proving that it holds this "
                     "connection's token",
                     ep->peer);
        return;
    }
    psc_proof_receive(&ep->proof, PSC_PROOF_ANSWER, ep->in.buffer,
                      PSC_PROOF_SIZE, &reply);
    if (reply.verdict == PSC_PROOF_ACCEPTED)
        tcp_ep_rise(ep);
    else
        tcp_ep_break(ep, PSC_ERR_CONNECT, "%s: %s", ep->peer, reply.why);
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
    memcpy(ep->caller_nonce, hello + 16, PSC_PROOF_NONCE_SIZE);
    tcp_ep_name_peer(ep);
    if (ep->stage == TCP_EP_NEW)
        tcp_ep_enter(ep, TCP_EP_CALLED);
    else
        tcp_ep_challenge(ep);
    if (ep->stage == TCP_EP_FAILING)
        tcp_ep_tell_failure(ep);
}

/* A caller may have come before ep_connect. */
static void tcp_accept_begin(tcp_ep_t *ep, const uint8_t *token)
{
    if (!psc_proof_begin(&ep->proof, ep->role, token, ep->id, ep->peer_id))
        tcp_ep_break(ep, PSC_ERR_TRANSPORT, "no random bytes");
    else if (ep->stage == TCP_EP_CALLED)
        tcp_ep_challenge(ep);
    else
        tcp_ep_enter(ep, TCP_EP_AWAIT_CALL);
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

    if (events & EPOLLOUT)
        tcp_out_flush(ep);
    if (events & ~EPOLLOUT)
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
    if (called && ep->role != PSC_ROLE_ACCEPTOR)
        tcp_stage_lost(ep);
    if (ep->role == PSC_ROLE_SELF)
        return tcp_connect_self(ep);
    if (tcp_address_unpack(ep, params->address, params->address_len) != PSC_OK)
        tcp_ep_break(ep, PSC_ERR_PROTOCOL, "the peer's address is damaged");
    else if (ep->role == PSC_ROLE_CONNECTOR)
        tcp_connect_begin(ep, params->token);
    else
        tcp_accept_begin(ep, params->token);
    return PSC_INPROGRESS;
}

/* ---- time ---- */

static bool tcp_dial_is_due(const tcp_dial_t *dial, int64_t now)
{
    struct pollfd fd = {.fd = dial->source.fd, .events = POLLOUT};

    return dial->deadline <= now && poll(&fd, 1, 0) == 0;
}

/* Returns when to look at this endpoint again. */
static int64_t tcp_ep_expire(tcp_ep_t *ep, int64_t now)
{
    int64_t next;

    for (unsigned i = 0; i < ep->n_candidates; i++) {
        tcp_dial_t *dial = &ep->dials[i];

        if (tcp_dial_open(dial) && !dial->greeted && tcp_dial_is_due(dial, now))
            tcp_dial_fall(dial, "no answer (PSP_TCP_CONNECT_TIMEOUT)");
    }
    if (ep->stage == TCP_EP_CONNECTING && ep->deadline <= now)
        tcp_connect_next(ep);
    next = ep->deadline;
    for (unsigned i = 0; i < ep->n_candidates; i++) {
        const tcp_dial_t *dial = &ep->dials[i];

        if (tcp_dial_open(dial) && !dial->greeted && dial->deadline > now &&
            dial->deadline < next)
            next = dial->deadline;
    }
    return next;
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
        int64_t due = ep->stage == TCP_EP_CONNECTING ? tcp_ep_expire(ep, now)
                                                     : TCP_NEVER;

        next = due < next ? due : next;
    }
    /* one at a time: who is told may change the list */
    while ((failing = tcp_ep_find_failing(iface)))
        tcp_ep_tell_failure(failing);
    return next;
}
