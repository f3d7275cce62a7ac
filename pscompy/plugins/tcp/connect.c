/* Connecting: the states of an endpoint, the handlers of its sockets, and the
 * acceptor. The acceptor challenges a caller, an accepted stream whose hello
 * names the acceptor's endpoint, to prove that it knows the token. listen.c
 * handles a caller until its hello is complete; dial.c is the connector. */
#include <stdio.h>
#include <unistd.h>

#include "tcp.h"

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

/* Stage CALLED (a caller has named this endpoint before ep_connect): the caller
 * sends nothing before it receives the challenge, so a readable socket means
 * that it has hung up. */
static void tcp_state_lost(tcp_ep_t *ep)
{
    tcp_source_close(tcp_ep_iface(ep), &ep->rx);
    tcp_ep_enter(ep, TCP_EP_NEW);
}

/* Stage AWAIT_ANSWER: reads the caller's answer to the challenge; frames that
 * arrive behind the answer stay in the socket. */
static void tcp_state_answered(tcp_ep_t *ep)
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

/* Returns the endpoint whose id a hello carries, or NULL if there is none that
 * still waits for a caller. */
static tcp_ep_t *tcp_ep_find(tcp_iface_t *iface, uint64_t id)
{
    psc_list_for_each(ep, &iface->connecting, tcp_ep_t, link) {
        if (ep->id == id &&
            (ep->state == TCP_EP_NEW || ep->state == TCP_EP_AWAIT_CALL))
            return ep;
    }
    return NULL;
}

void tcp_ep_take_call(tcp_iface_t *iface, int fd, const uint8_t *hello)
{
    tcp_ep_t *ep = tcp_ep_find(iface, tcp_wire_load64(hello + 8));

    if (!ep) {
        /* the endpoint was closed or has a caller already, or the caller has
         * guessed the id */
        close(fd);
        return;
    }
    ep->rx.fd = fd;
    memcpy(ep->caller_nonce, hello + 16, PSC_PROOF_NONCE_SIZE);
    tcp_ep_name_peer(ep);
    if (ep->state == TCP_EP_NEW)
        tcp_ep_enter(ep, TCP_EP_CALLED);
    else
        tcp_ep_challenge(ep);
    if (ep->state == TCP_EP_FAILING)
        tcp_ep_report_failure(ep);
}

/* Starts the acceptor. Its caller, the stream that names this endpoint, may
 * have arrived before ep_connect was called. */
static void tcp_accept_begin(tcp_ep_t *ep, const uint8_t *token)
{
    if (!psc_proof_begin(&ep->proof, ep->role, token, ep->id, ep->peer_id))
        tcp_ep_break(ep, PSC_ERR_TRANSPORT, "no random bytes");
    else if (ep->state == TCP_EP_CALLED)
        tcp_ep_challenge(ep);
    else
        tcp_ep_enter(ep, TCP_EP_AWAIT_CALL);
}

/* ---- states ---- */

static void tcp_state_none(tcp_ep_t *ep)
{
    (void)ep;
}

static void tcp_state_received(tcp_ep_t *ep)
{
    tcp_stream_receive(ep);
}

static void tcp_state_discarded(tcp_ep_t *ep)
{
    tcp_ep_discard(ep);
}

void tcp_ep_ready(tcp_source_t *source, uint32_t events)
{
    static void (*const handlers[TCP_N_STATES])(tcp_ep_t *) = {
#define TCP_STATE_HANDLER(name, handler) tcp_state_##handler,
        TCP_STATE_LIST(TCP_STATE_HANDLER)
#undef TCP_STATE_HANDLER
    };
    tcp_ep_t *ep = psc_container_of(source, tcp_ep_t, rx);

    if (events & EPOLLOUT)
        tcp_out_flush(ep);
    if (events & ~EPOLLOUT)
        handlers[ep->state](ep);
    if (ep->state == TCP_EP_FAILING)
        tcp_ep_report_failure(ep);
}

/* Handles the second socket of an endpoint that is connected to itself;
 * messages are sent on this socket. */
void tcp_ep_writable(tcp_source_t *source, uint32_t events)
{
    tcp_ep_t *ep = psc_container_of(source, tcp_ep_t, tx);

    (void)events;
    tcp_out_flush(ep);
    if (ep->state == TCP_EP_FAILING)
        tcp_ep_report_failure(ep);
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
    bool called = ep->state == TCP_EP_CALLED;

    if (ep->state != TCP_EP_NEW && !called)
        return PSC_ERR_INVALID;
    ep->role = params->role;
    ep->spare = params->spare;
    if (ep->spare)
        ep->short_max = 0;
    if (called && ep->role != PSC_ROLE_ACCEPTOR)
        tcp_state_lost(ep);
    if (ep->role == PSC_ROLE_SELF)
        return tcp_connect_self(ep);
    if (tcp_address_unpack(ep, params->address, params->address_len) != PSC_OK)
        tcp_ep_break(ep, PSC_ERR_PROTOCOL, "the peer's address is damaged");
    else if (ep->role == PSC_ROLE_CONNECTOR)
        tcp_dials_begin(ep, params->token);
    else
        tcp_accept_begin(ep, params->token);
    return PSC_INPROGRESS;
}

/* ---- time ---- */

static tcp_ep_t *tcp_ep_find_failing(tcp_iface_t *iface)
{
    psc_list_for_each(ep, &iface->connecting, tcp_ep_t, link) {
        if (ep->state == TCP_EP_FAILING)
            return ep;
    }
    return NULL;
}

int64_t tcp_connect_expire(tcp_iface_t *iface, int64_t now)
{
    int64_t next = TCP_NEVER;
    tcp_ep_t *failing;

    psc_list_for_each(ep, &iface->connecting, tcp_ep_t, link) {
        int64_t due = ep->state == TCP_EP_CONNECTING ? tcp_dials_expire(ep, now)
                                                     : TCP_NEVER;

        next = due < next ? due : next;
    }
    /* search from the start after each report, because the upcall may change
     * the list of connecting endpoints */
    while ((failing = tcp_ep_find_failing(iface)))
        tcp_ep_report_failure(failing);
    return next;
}
