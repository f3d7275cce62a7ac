/* The trial: two endpoints on one machine prove their identity to each other
 * and find out whether cross-memory attach works, before either enters the
 * state UP.
 *
 *   connector                     acceptor
 *   HELLO      ids, nonce    ->
 *              <-   nonce, proof  CHALLENGE
 *   OFFER      answer, ring, ->
 *              bell, board, probe
 *              <-  the same, and whether OFFER
 *                  it could read the probe
 *   VERDICT    whether both could ->
 *
 * The bell is a pipe that wakes the sender; the board holds bits that show
 * which ring has a record; the probe is bytes to read by cross-memory attach.
 * The peer's user is checked with SO_PEERCRED before the first packet. The
 * token proof (transport/kit/token_proof.h) is in HELLO, CHALLENGE and the
 * first OFFER. */
#include <stdio.h>
#include <string.h>

#include "shm.h"

void shm_trial_check(shm_link_t *link, psc_status_t status)
{
    if (status != PSC_OK && link->ep != NULL)
        shm_ep_fail(link->ep, status, "shm: stage %s of the trial: %s",
                    shm_stage_name(link->stage), psc_status_string(status));
}

/* ---- the stages ---- */

/* Passes a message of the token proof to the proof's state machine. Returns
 * false if the peer does not hold the token; the endpoint has then failed. */
static bool shm_trial_prove(shm_link_t *link, psc_proof_kind_t kind,
                            const uint8_t *body, size_t len,
                            psc_proof_reply_t *reply)
{
    psc_proof_receive(&link->ep->proof, kind, body, len, reply);
    if (reply->verdict == PSC_PROOF_CONTINUES ||
        reply->verdict == PSC_PROOF_ACCEPTED)
        return true;
    shm_ep_fail(link->ep, PSC_ERR_CONNECT, "shm: %s",
                reply->verdict == PSC_PROOF_REFUSED
                    ? reply->why
                    : "the token proof is out of turn");
    return false;
}

void shm_trial_challenge(shm_link_t *link)
{
    shm_ep_t *ep = link->ep;
    shm_packet_t packet = {.kind = SHM_PACKET_CHALLENGE};
    psc_proof_reply_t reply;

    if (link->hello.source != ep->peer.ep ||
        memcmp(link->hello.process, ep->peer.process, SHM_ID_SIZE) != 0) {
        shm_link_refuse(link, "shm: another endpoint is expected here");
        return;
    }
    if (!shm_trial_prove(link, PSC_PROOF_HELLO, link->hello.nonce,
                         PSC_PROOF_NONCE_SIZE, &reply))
        return;
    memcpy(packet.u.challenge, reply.body, PSC_PROOF_CHALLENGE_SIZE);
    shm_link_enter(link, SHM_STAGE_PROOF);
    shm_trial_check(link, shm_link_send(link, &packet, NULL, 0));
}

static void shm_stage_anonymous(shm_link_t *link, const shm_packet_t *packet,
                                int *fds)
{
    shm_ep_t *ep = shm_ep_find(link->iface, packet->u.hello.target);

    (void)fds;
    if (ep == NULL || ep->link != NULL ||
        !(ep->state == SHM_EP_NEW ||
          (ep->state == SHM_EP_CONNECTING && ep->role == PSC_ROLE_ACCEPTOR))) {
        shm_link_refuse(link, "shm: no endpoint waits for this connection");
        return;
    }
    link->hello = packet->u.hello;
    link->ep = ep;
    ep->link = link;
    if (ep->state == SHM_EP_NEW)
        shm_link_enter(link, SHM_STAGE_PARKED);
    else
        shm_trial_challenge(link);
}

static void shm_stage_challenge(shm_link_t *link, const shm_packet_t *packet,
                                int *fds)
{
    psc_proof_reply_t reply;

    (void)fds;
    if (!shm_trial_prove(link, PSC_PROOF_CHALLENGE, packet->u.challenge,
                         PSC_PROOF_CHALLENGE_SIZE, &reply))
        return;
    shm_link_enter(link, SHM_STAGE_OFFER);
    shm_trial_check(link, shm_trial_send_offer(link, reply.body));
}

static void shm_stage_proof(shm_link_t *link, const shm_packet_t *packet,
                            int *fds)
{
    psc_proof_reply_t reply;
    psc_status_t status;

    if (!shm_trial_prove(link, PSC_PROOF_ANSWER, packet->u.offer.answer,
                         PSC_PROOF_SIZE, &reply) ||
        !shm_trial_take_offer(link, &packet->u.offer, fds))
        return;
    status = shm_trial_send_offer(link, NULL);
    if (status == PSC_OK)
        shm_link_enter(link, SHM_STAGE_VERDICT);
    shm_trial_check(link, status);
}

/* From here on a letter (in the ring's control page, see link.c) replaces the
 * last packet of a side; the peer's letter may be present already. The socket
 * stays open if either side cannot watch the other's process (name spaces); the
 * hang-up of the socket then shows that the peer has ended. */
static void shm_trial_begin_letters(shm_link_t *link)
{
    if (link->process.fd < 0 || !link->guarded)
        return;
    shm_source_close(&link->socket);
    link->by_mail = link->iface->mail = true;
}

/* Decides whether cross-memory attach is used, once both sides have tried to
 * read the other's probe (random bytes). Returns false if the endpoint has
 * failed. */
static bool shm_trial_judge(shm_link_t *link, bool verdict)
{
    shm_ep_t *ep = link->ep;

    ep->cma = link->verdict && verdict;
    ep->probing = false;
    if (ep->cma && ep->probe != NULL &&
        memcmp(ep->probe->echo, ep->probe->bytes, SHM_ID_SIZE) != 0) {
        shm_ep_fail(ep, PSC_ERR_PROTOCOL,
                    "shm: the peer says that it wrote to our memory and has "
                    "not");
        return false;
    }
    if (!ep->cma && (link->forced || link->iface->cma == SHM_CMA_FORCE)) {
        shm_ep_fail(ep, PSC_ERR_CONNECT,
                    "shm: cross-memory attach between process %ld and us does "
                    "not work; PSP_SHM_CMA=auto does without it",
                    (long)link->pid);
        return false;
    }
    if (!ep->cma && link->iface->cma != SHM_CMA_OFF)
        psc_iface_log(&link->iface->super, 3,
                      "no cross-memory attach with process %ld: switched off "
                      "there, or forbidden (name spaces, "
                      "kernel.yama.ptrace_scope)",
                      (long)link->pid);
    return true;
}

static void shm_trial_open(shm_link_t *link)
{
    shm_ep_t *ep = link->ep;

    shm_link_enter(link, SHM_STAGE_OPEN);
    if (shm_ep_enter(ep, SHM_EP_UP))
        ep->super.iface->up->ep_up(&ep->super);
    if (link->ep != NULL) /* The upcall may have closed the endpoint. */
        shm_trial_begin_letters(link);
}

void shm_trial_finish(shm_link_t *link, bool verdict)
{
    if (shm_trial_judge(link, verdict))
        shm_trial_open(link);
}

/* The acceptor's offer has arrived at the connector. The connector now sends
 * the verdict, the last packet of the trial. When the verdict arrives, the
 * acceptor is up. */
static void shm_stage_offer(shm_link_t *link, const shm_packet_t *packet,
                            int *fds)
{
    shm_packet_t answer = {.kind = SHM_PACKET_VERDICT};
    psc_status_t status;

    if (!shm_trial_take_offer(link, &packet->u.offer, fds) ||
        !shm_trial_judge(link, packet->u.offer.verdict == 1))
        return;
    answer.u.verdict = link->ep->cma;
    status = shm_link_send(link, &answer, NULL, 0);
    if (status == PSC_OK)
        shm_trial_open(link);
    else
        shm_trial_check(link, status);
}

static void shm_stage_verdict(shm_link_t *link, const shm_packet_t *packet,
                              int *fds)
{
    (void)fds;
    shm_trial_finish(link, packet->u.verdict == 1);
}

/* The peer has closed, too, after this side: it sends no more and writes no
 * more into our memory. */
static void shm_stage_parting(shm_link_t *link, const shm_packet_t *packet,
                              int *fds)
{
    (void)packet;
    (void)fds;
    shm_link_close(link);
}

static void shm_stage_open(shm_link_t *link, const shm_packet_t *packet,
                           int *fds)
{
    shm_ep_t *ep = link->ep;
    shm_packet_t answer = {.kind = SHM_PACKET_GOODBYE};

    (void)packet;
    (void)fds;
    shm_ep_leave(ep, PSC_ERR_CLOSED, "shm: the peer closed the endpoint");
    /* Puts of ours do not touch the peer's memory after this answer; the peer
     * may then free its memory. */
    shm_link_send(link, &answer, NULL, 0);
    shm_link_close(link);
}

/* ---- dispatch of packets ---- */

typedef struct shm_stage_row {
    const char *name;
    /* the kind of packet that the stage expects, and the number of descriptors
     * in it */
    shm_packet_kind_t packet;
    size_t n_fds;
    void (*receive)(shm_link_t *link, const shm_packet_t *packet, int *fds);
} shm_stage_row_t;

static const shm_stage_row_t shm_stages[SHM_N_STAGES] = {
    [SHM_STAGE_DIAL] = {"DIAL"},
    [SHM_STAGE_ANONYMOUS] = {"ANONYMOUS", SHM_PACKET_HELLO, 0,
                             shm_stage_anonymous},
    [SHM_STAGE_PARKED] = {"PARKED"},
    [SHM_STAGE_CHALLENGE] = {"CHALLENGE", SHM_PACKET_CHALLENGE, 0,
                             shm_stage_challenge},
    [SHM_STAGE_PROOF] = {"PROOF", SHM_PACKET_OFFER, 3, shm_stage_proof},
    [SHM_STAGE_OFFER] = {"OFFER", SHM_PACKET_OFFER, 3, shm_stage_offer},
    [SHM_STAGE_VERDICT] = {"VERDICT", SHM_PACKET_VERDICT, 0, shm_stage_verdict},
    [SHM_STAGE_OPEN] = {"OPEN", SHM_PACKET_GOODBYE, 0, shm_stage_open},
    [SHM_STAGE_PARTING] = {"PARTING", SHM_PACKET_GOODBYE, 0, shm_stage_parting},
    [SHM_STAGE_OVER] = {"OVER"},
};

const char *shm_stage_name(shm_stage_t stage)
{
    return shm_stages[stage].name;
}

static void shm_trial_fail(shm_link_t *link, psc_status_t status,
                           const char *reason)
{
    if (link->ep != NULL && link->stage != SHM_STAGE_PARKED)
        shm_ep_fail(link->ep, status, "%s", reason);
    else
        shm_link_refuse(link, reason);
}

/* Closes the link after the peer has given up the connection, or its process
 * has ended. */
static void shm_trial_ended(shm_link_t *link)
{
    if (link->ep != NULL)
        link->ep->probing = false;
    shm_link_close(link);
}

/* The text of the peer's refusal is shown to users, so it is made printable and
 * its length is bounded. */
static void shm_trial_refused(shm_link_t *link, const shm_packet_t *packet)
{
    char text[SHM_REFUSAL_MAX], reason[PSC_REASON_MAX];

    memcpy(text, packet->u.refusal, sizeof text);
    text[sizeof text - 1] = '\0';
    for (char *c = text; *c != '\0'; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
    snprintf(reason, sizeof reason, "shm: the peer refused, saying: %s", text);
    if (link->stage == SHM_STAGE_OPEN)
        shm_ep_leave(link->ep, PSC_ERR_PEER_LOST, reason);
    else if (link->ep != NULL && link->stage != SHM_STAGE_PARKED)
        shm_ep_fail(link->ep, PSC_ERR_CONNECT, "%s", reason);
    shm_trial_ended(link);
}

/* Processes a packet. `packet` is NULL if the bytes that arrived are not a
 * packet. A stage that keeps a descriptor replaces it by -1 in `fds`. */
void shm_trial_receive(shm_link_t *link, const shm_packet_t *packet, int *fds)
{
    const shm_stage_row_t *row = &shm_stages[link->stage];
    size_t n_fds = 0;

    while (n_fds < SHM_MAX_FDS && fds[n_fds] >= 0)
        n_fds++;
    if (packet != NULL && packet->version != SHM_PACKET_VERSION)
        shm_trial_fail(link, PSC_ERR_CONNECT,
                       "shm: the two versions of pscompy do not understand "
                       "each other");
    else if (packet != NULL && packet->kind == SHM_PACKET_REFUSAL)
        shm_trial_refused(link, packet);
    else if (packet == NULL || packet->kind != row->packet ||
             n_fds != row->n_fds || row->receive == NULL)
        shm_trial_fail(link, PSC_ERR_PROTOCOL,
                       "shm: a packet arrived that this stage does not expect");
    else
        row->receive(link, packet, fds);
}

/* The peer has closed its socket, or its process has ended. */
void shm_trial_hangup(shm_link_t *link)
{
    shm_ep_t *ep = link->ep;

    if (link->stage == SHM_STAGE_OPEN)
        shm_ep_leave(ep, PSC_ERR_PEER_LOST, "shm: the peer's process ended");
    else if (ep != NULL && link->stage != SHM_STAGE_PARKED)
        shm_ep_fail(ep, PSC_ERR_CONNECT,
                    "shm: the peer hung up in stage %s of the trial",
                    shm_stage_name(link->stage));
    shm_trial_ended(link);
}
