/* The connector dials the peer's addresses, sends a hello that names the peer's
 * endpoint, and answers the challenge (wire.h).
 *
 * Some of the addresses may be unreachable from here, or belong to another
 * process: the address of a network bridge may be the same on many hosts.
 * Therefore the addresses are dialled in parallel, as in Happy Eyeballs (RFC
 * 8305): the next address is dialled when the previous one has failed or has
 * not answered for a moment. The acceptor challenges the sender of the first
 * hello that names its endpoint and closes the other streams, so exactly one
 * dial receives a challenge. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "tcp.h"
#include "pscompy/transport/kit/clock.h"
#include "pscompy/transport/kit/restart.h"

/* Delay before the next address of the peer is dialled. The longer delay
 * applies after a hello was sent, because its receiver may just be busy. */
#define TCP_DIAL_DELAY_NS 250000000
#define TCP_DIAL_PATIENCE_NS 2000000000

/* ---- greetings ---- */

bool tcp_greeting_send(int fd, const void *bytes, size_t len)
{
    return PSC_RESTART(send(fd, bytes, len, MSG_NOSIGNAL)) == (ssize_t)len;
}

int tcp_greeting_read(int fd, uint8_t *bytes, size_t *have, size_t size)
{
    ssize_t n = PSC_RESTART(recv(fd, bytes + *have, size - *have, 0));

    if (n < 0 && errno == EAGAIN)
        return 0;
    if (n <= 0)
        return -1;
    *have += (size_t)n;
    return *have == size;
}

/* ---- dialling ---- */

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

static void tcp_dial_name(const tcp_dial_t *dial, char *name, size_t room)
{
    tcp_address_print(&dial->ep->candidates[dial - dial->ep->dials], name,
                      room);
}

/* Closes a dial (an attempt to connect to one address) and notes the reason in
 * ep->tried. */
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
    if (iface->settings.bound &&
        !tcp_address_bind(iface, fd, to->any.sa_family))
        return false;
    /* also after a signal, the kernel goes on with the connection */
    if (connect(fd, &to->any, tcp_address_len(to)) < 0 &&
        errno != EINPROGRESS && errno != EINTR)
        return false;
    if (tcp_source_watch(iface, &dial->source, EPOLLOUT) != PSC_OK)
        return false;
    dial->deadline = psc_clock_deadline(iface->settings.connect_ns);
    tcp_iface_wake_at(iface, dial->deadline);
    return true;
}

/* Dials the peer's next address, and sets the time at which the address after
 * it is dialled. */
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

/* Called when connect() has succeeded or failed; sends the hello after a
 * success. */
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

/* Makes the connection of this dial that of the endpoint, and closes the other
 * dials. */
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

/* Called when the acceptor's challenge arrives. The challenge proves that the
 * acceptor holds the token; sends the answer, which proves that we hold it. */
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
        /* another dial has won, or the endpoint has failed, earlier in this
         * call of progress */
        return;
    if (dial->greeted)
        tcp_dial_challenged(dial);
    else
        tcp_dial_greet(dial);
    if (dial->ep->state == TCP_EP_FAILING)
        tcp_ep_report_failure(dial->ep);
}

void tcp_dials_begin(tcp_ep_t *ep, const uint8_t *token)
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

/* ---- time ---- */

static bool tcp_dial_is_due(const tcp_dial_t *dial, int64_t now)
{
    struct pollfd fd = {.fd = dial->source.fd, .events = POLLOUT};

    return dial->deadline <= now && PSC_RESTART(poll(&fd, 1, 0)) == 0;
}

int64_t tcp_dials_expire(tcp_ep_t *ep, int64_t now)
{
    int64_t next;

    for (unsigned i = 0; i < ep->n_candidates; i++) {
        tcp_dial_t *dial = &ep->dials[i];

        if (tcp_dial_open(dial) && !dial->greeted && tcp_dial_is_due(dial, now))
            tcp_dial_fall(dial, "no answer (PSP_TCP_CONNECT_TIMEOUT)");
    }
    if (ep->state == TCP_EP_CONNECTING && ep->deadline <= now)
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
