/* The trial: two endpoints on one machine prove their identity to each other
 * and find out whether cross-memory attach works, before either enters the
 * state UP.
 *
 *   connector                     acceptor
 *   HELLO      ids, nonce    ->
 *              <-   nonce, proof  CHALLENGE
 *   OFFER      answer, ring, ->
 *              doorbell, bitmap, probe
 *              <-  the same, and whether OFFER
 *                  it could read the probe
 *   VERDICT    whether both could ->
 *
 * The doorbell is a pipe that wakes the sender; the bitmap holds bits that show
 * which ring has a record; the probe is bytes to read by cross-memory attach.
 * The peer's user is checked with SO_PEERCRED before the first packet. The
 * token proof (transport/kit/token_proof.h) is in HELLO, CHALLENGE and the
 * first OFFER. */
#include <stdio.h>
#include <string.h>

#include "shm.h"

void shm_trial_check(shm_socket_t *sock, psc_status_t status)
{
    if (status != PSC_OK && sock->ep != NULL)
        shm_ep_fail(sock->ep, status, "shm: state %s of the trial: %s",
                    shm_socket_state_name(sock->state),
                    psc_status_string(status));
}

/* ---- the states ---- */

/* Passes a message of the token proof to the proof's state machine. Returns
 * false if the peer does not hold the token; the endpoint has then failed. */
static bool shm_trial_prove(shm_socket_t *sock, psc_proof_kind_t kind,
                            const uint8_t *body, size_t len,
                            psc_proof_reply_t *reply)
{
    psc_proof_receive(&sock->ep->proof, kind, body, len, reply);
    if (reply->verdict == PSC_PROOF_CONTINUES ||
        reply->verdict == PSC_PROOF_ACCEPTED)
        return true;
    shm_ep_fail(sock->ep, PSC_ERR_CONNECT, "shm: %s",
                reply->verdict == PSC_PROOF_REFUSED
                    ? reply->why
                    : "the token proof is out of turn");
    return false;
}

void shm_trial_challenge(shm_socket_t *sock)
{
    shm_ep_t *ep = sock->ep;
    shm_packet_t packet = {.kind = SHM_PACKET_CHALLENGE};
    psc_proof_reply_t reply;

    if (sock->hello.source != ep->peer.ep ||
        memcmp(sock->hello.process, ep->peer.process, SHM_ID_SIZE) != 0) {
        shm_socket_refuse(sock, "shm: another endpoint is expected here");
        return;
    }
    if (!shm_trial_prove(sock, PSC_PROOF_HELLO, sock->hello.nonce,
                         PSC_PROOF_NONCE_SIZE, &reply))
        return;
    memcpy(packet.u.challenge, reply.body, PSC_PROOF_CHALLENGE_SIZE);
    shm_socket_enter(sock, SHM_SOCKET_PROOF);
    shm_trial_check(sock, shm_socket_send(sock, &packet, NULL, 0));
}

static void shm_on_anonymous(shm_socket_t *sock, const shm_packet_t *packet,
                             int *fds)
{
    shm_ep_t *ep = shm_ep_find(sock->iface, packet->u.hello.target);

    (void)fds;
    if (ep == NULL || ep->sock != NULL ||
        !(ep->state == SHM_EP_NEW ||
          (ep->state == SHM_EP_CONNECTING && ep->role == PSC_ROLE_ACCEPTOR))) {
        shm_socket_refuse(sock, "shm: no endpoint waits for this connection");
        return;
    }
    sock->hello = packet->u.hello;
    sock->ep = ep;
    ep->sock = sock;
    if (ep->state == SHM_EP_NEW)
        shm_socket_enter(sock, SHM_SOCKET_PARKED);
    else
        shm_trial_challenge(sock);
}

static void shm_on_challenge(shm_socket_t *sock, const shm_packet_t *packet,
                             int *fds)
{
    psc_proof_reply_t reply;

    (void)fds;
    if (!shm_trial_prove(sock, PSC_PROOF_CHALLENGE, packet->u.challenge,
                         PSC_PROOF_CHALLENGE_SIZE, &reply))
        return;
    shm_socket_enter(sock, SHM_SOCKET_RESOURCES);
    shm_trial_check(sock, shm_trial_send_resources(sock, reply.body));
}

static void shm_on_proof(shm_socket_t *sock, const shm_packet_t *packet,
                         int *fds)
{
    psc_proof_reply_t reply;
    psc_status_t status;

    if (!shm_trial_prove(sock, PSC_PROOF_ANSWER, packet->u.resources.answer,
                         PSC_PROOF_SIZE, &reply) ||
        !shm_trial_take_resources(sock, &packet->u.resources, fds))
        return;
    status = shm_trial_send_resources(sock, NULL);
    if (status == PSC_OK)
        shm_socket_enter(sock, SHM_SOCKET_VERDICT);
    shm_trial_check(sock, status);
}

/* From here on a letter (in the ring's control page, see socket.c) replaces the
 * last packet of a side; the peer's letter may be present already. The socket
 * stays open if either side cannot watch the other's process (name spaces); the
 * hang-up of the socket then shows that the peer has ended. */
static void shm_trial_begin_letters(shm_socket_t *sock)
{
    if (sock->process.fd < 0 || !sock->guarded)
        return;
    shm_source_close(&sock->socket);
    sock->by_mail = sock->iface->mail = true;
}

/* Decides whether cross-memory attach is used, once both sides have tried to
 * read the other's probe (random bytes). Returns false if the endpoint has
 * failed. */
static bool shm_trial_judge(shm_socket_t *sock, bool verdict)
{
    shm_ep_t *ep = sock->ep;

    ep->cma = sock->verdict && verdict;
    ep->probing = false;
    if (ep->cma && ep->probe != NULL &&
        memcmp(ep->probe->echo, ep->probe->bytes, SHM_ID_SIZE) != 0) {
        shm_ep_fail(ep, PSC_ERR_PROTOCOL,
                    "shm: the peer says that it wrote to our memory and has "
                    "not");
        return false;
    }
    if (!ep->cma && (sock->forced || sock->iface->cma == SHM_CMA_FORCE)) {
        shm_ep_fail(ep, PSC_ERR_CONNECT,
                    "shm: cross-memory attach between process %ld and us does "
                    "not work; PSP_SHM_CMA=auto does without it",
                    (long)sock->pid);
        return false;
    }
    if (!ep->cma && sock->iface->cma != SHM_CMA_OFF)
        psc_iface_log(&sock->iface->super, 3,
                      "no cross-memory attach with process %ld: switched off "
                      "there, or forbidden (name spaces, "
                      "kernel.yama.ptrace_scope)",
                      (long)sock->pid);
    return true;
}

static void shm_trial_open(shm_socket_t *sock)
{
    shm_ep_t *ep = sock->ep;

    shm_socket_enter(sock, SHM_SOCKET_OPEN);
    if (shm_ep_enter(ep, SHM_EP_UP))
        ep->super.iface->up->ep_up(&ep->super);
    if (sock->ep != NULL) /* The upcall may have closed the endpoint. */
        shm_trial_begin_letters(sock);
}

void shm_trial_finish(shm_socket_t *sock, bool verdict)
{
    if (shm_trial_judge(sock, verdict))
        shm_trial_open(sock);
}

/* The acceptor's resources have arrived at the connector. The connector now
 * sends the verdict, the last packet of the trial. When the verdict arrives,
 * the acceptor is up. */
static void shm_on_resources(shm_socket_t *sock, const shm_packet_t *packet,
                             int *fds)
{
    shm_packet_t answer = {.kind = SHM_PACKET_VERDICT};
    psc_status_t status;

    if (!shm_trial_take_resources(sock, &packet->u.resources, fds) ||
        !shm_trial_judge(sock, packet->u.resources.verdict == 1))
        return;
    answer.u.verdict = sock->ep->cma;
    status = shm_socket_send(sock, &answer, NULL, 0);
    if (status == PSC_OK)
        shm_trial_open(sock);
    else
        shm_trial_check(sock, status);
}

static void shm_on_verdict(shm_socket_t *sock, const shm_packet_t *packet,
                           int *fds)
{
    (void)fds;
    shm_trial_finish(sock, packet->u.verdict == 1);
}

/* The peer has closed, too, after this side: it sends no more and writes no
 * more into our memory. */
static void shm_on_parting(shm_socket_t *sock, const shm_packet_t *packet,
                           int *fds)
{
    (void)packet;
    (void)fds;
    shm_socket_close(sock);
}

static void shm_on_open(shm_socket_t *sock, const shm_packet_t *packet,
                        int *fds)
{
    shm_ep_t *ep = sock->ep;
    shm_packet_t answer = {.kind = SHM_PACKET_GOODBYE};

    (void)packet;
    (void)fds;
    shm_ep_leave(ep, PSC_ERR_CLOSED, "shm: the peer closed the endpoint");
    /* Puts of ours do not touch the peer's memory after this answer; the peer
     * may then free its memory. */
    shm_socket_send(sock, &answer, NULL, 0);
    shm_socket_close(sock);
}

/* ---- dispatch of packets ---- */

typedef struct shm_socket_row {
    const char *name;
    /* the kind of packet that the state expects, and the number of descriptors
     * in it */
    shm_packet_kind_t packet;
    size_t n_fds;
    void (*receive)(shm_socket_t *sock, const shm_packet_t *packet, int *fds);
} shm_socket_row_t;

static const shm_socket_row_t shm_socket_states[SHM_N_SOCKET_STATES] = {
    [SHM_SOCKET_DIAL] = {"DIAL"},
    [SHM_SOCKET_ANONYMOUS] = {"ANONYMOUS", SHM_PACKET_HELLO, 0,
                              shm_on_anonymous},
    [SHM_SOCKET_PARKED] = {"PARKED"},
    [SHM_SOCKET_CHALLENGE] = {"CHALLENGE", SHM_PACKET_CHALLENGE, 0,
                              shm_on_challenge},
    [SHM_SOCKET_PROOF] = {"PROOF", SHM_PACKET_RESOURCES, 3, shm_on_proof},
    [SHM_SOCKET_RESOURCES] = {"RESOURCES", SHM_PACKET_RESOURCES, 3,
                              shm_on_resources},
    [SHM_SOCKET_VERDICT] = {"VERDICT", SHM_PACKET_VERDICT, 0, shm_on_verdict},
    [SHM_SOCKET_OPEN] = {"OPEN", SHM_PACKET_GOODBYE, 0, shm_on_open},
    [SHM_SOCKET_PARTING] = {"PARTING", SHM_PACKET_GOODBYE, 0, shm_on_parting},
    [SHM_SOCKET_OVER] = {"OVER"},
};

const char *shm_socket_state_name(shm_socket_state_t state)
{
    return shm_socket_states[state].name;
}

static void shm_trial_fail(shm_socket_t *sock, psc_status_t status,
                           const char *reason)
{
    if (sock->ep != NULL && sock->state != SHM_SOCKET_PARKED)
        shm_ep_fail(sock->ep, status, "%s", reason);
    else
        shm_socket_refuse(sock, reason);
}

/* Closes the socket after the peer has given up the connection, or its process
 * has ended. */
static void shm_trial_ended(shm_socket_t *sock)
{
    if (sock->ep != NULL)
        sock->ep->probing = false;
    shm_socket_close(sock);
}

/* The text of the peer's refusal is shown to users, so it is made printable and
 * its length is bounded. */
static void shm_trial_refused(shm_socket_t *sock, const shm_packet_t *packet)
{
    char text[SHM_REFUSAL_MAX], reason[PSC_REASON_MAX];

    memcpy(text, packet->u.refusal, sizeof text);
    text[sizeof text - 1] = '\0';
    for (char *c = text; *c != '\0'; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
    snprintf(reason, sizeof reason, "shm: the peer refused, saying: %s", text);
    if (sock->state == SHM_SOCKET_OPEN)
        shm_ep_leave(sock->ep, PSC_ERR_PEER_LOST, reason);
    else if (sock->ep != NULL && sock->state != SHM_SOCKET_PARKED)
        shm_ep_fail(sock->ep, PSC_ERR_CONNECT, "%s", reason);
    shm_trial_ended(sock);
}

/* Processes a packet. `packet` is NULL if the bytes that arrived are not a
 * packet. A state that keeps a descriptor replaces it by -1 in `fds`. */
void shm_trial_receive(shm_socket_t *sock, const shm_packet_t *packet, int *fds)
{
    const shm_socket_row_t *row = &shm_socket_states[sock->state];
    size_t n_fds = 0;

    while (n_fds < SHM_MAX_FDS && fds[n_fds] >= 0)
        n_fds++;
    if (packet != NULL && packet->version != SHM_PACKET_VERSION)
        shm_trial_fail(sock, PSC_ERR_CONNECT,
                       "shm: the two versions of pscompy do not understand "
                       "each other");
    else if (packet != NULL && packet->kind == SHM_PACKET_REFUSAL)
        shm_trial_refused(sock, packet);
    else if (packet == NULL || packet->kind != row->packet ||
             n_fds != row->n_fds || row->receive == NULL)
        shm_trial_fail(sock, PSC_ERR_PROTOCOL,
                       "shm: a packet arrived that this state does not expect");
    else
        row->receive(sock, packet, fds);
}

/* The peer has closed its socket, or its process has ended. */
void shm_trial_hangup(shm_socket_t *sock)
{
    shm_ep_t *ep = sock->ep;

    if (sock->state == SHM_SOCKET_OPEN)
        shm_ep_leave(ep, PSC_ERR_PEER_LOST, "shm: the peer's process ended");
    else if (ep != NULL && sock->state != SHM_SOCKET_PARKED)
        shm_ep_fail(ep, PSC_ERR_CONNECT,
                    "shm: the peer hung up in state %s of the trial",
                    shm_socket_state_name(sock->state));
    shm_trial_ended(sock);
}
