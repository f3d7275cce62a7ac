/* How two NIs come to trust each other: OPEN, ANSWER, CONFIRM.
 *
 * Every frame after that carries the token of its receiver, which only the two
 * know; so who cannot read the wire cannot say anything on it. Each of the
 * three is signed with the answerer's cookie, so only who was told the cookie
 * gets a token. The answerer keeps nothing until the CONFIRM: its token is a
 * hash, under its secret, of what the opener said (as in SYN cookies).
 *
 * If both open at once, the one with the lower address goes on. A process that
 * starts anew under an old address shows by its CONFIRM that it is there; what
 * was under way to its predecessor has failed then. */
#include <string.h>

#include "nic.h"

#define AGAIN_NS 20000000ll

typedef struct psni_identity {
    uint32_t nid, pid;
} psni_identity_t;

uint64_t psni_secret(const psni_ni_t *ni, const void *bytes, size_t length)
{
    uint8_t hash[PSC_SIPHASH_SIZE];

    psc_siphash(ni->secret, bytes, length, hash);
    return psc_siphash_load(hash);
}

static uint64_t psni_meet_token(const psni_ni_t *ni, ptl_process_t peer,
                                const psni_hello_t *hello)
{
    struct {
        psni_identity_t peer;
        uint64_t token, window, uid;
    } said = {.peer = {peer.phys.nid, peer.phys.pid},
              .token = hello->token,
              .window = hello->window,
              .uid = hello->uid};

    return psni_secret(ni, &said, sizeof(said));
}

static void psni_meet_sign(const uint8_t *cookie, ptl_process_t from,
                           ptl_process_t to, const psni_hello_t *hello,
                           uint8_t *proof)
{
    struct {
        psni_identity_t from, to;
        uint8_t said[offsetof(psni_hello_t, proof)];
    } text = {.from = {from.phys.nid, from.phys.pid},
              .to = {to.phys.nid, to.phys.pid}};

    memcpy(text.said, hello, sizeof(text.said));
    psc_siphash(cookie, &text, sizeof(text), proof);
}

static void psni_meet_send(psni_ni_t *ni, const struct sockaddr_in *to,
                           const uint8_t *cookie, psni_role_t role,
                           uint64_t token, uint64_t echo)
{
    psni_packet_t *packet = &ni->packets[0];
    psni_head_t head = {.magic = PSNI_MAGIC, .kind = PSNI_FRAME_HELLO};
    psni_hello_t hello = {.role = (uint8_t)role,
                          .uid = ni->uid,
                          .token = token,
                          .echo = echo,
                          .window = ni->room};

    psni_meet_sign(cookie, ni->id, psni_process(to), &hello, hello.proof);
    memcpy(packet->head, &head, sizeof(head));
    memcpy(packet->head + sizeof(head), &hello, sizeof(hello));
    packet->iov[0] = (struct iovec){.iov_base = packet->head,
                                    .iov_len = sizeof(head) + sizeof(hello)};
    packet->n_iov = 1;
    psni_wire_send(ni, to, packet, 1);
}

static void psni_meet_heard(psni_peer_t *peer, const psni_hello_t *hello)
{
    peer->uid = hello->uid;
    peer->most = hello->window < PSNI_LEAST_WINDOW ? PSNI_LEAST_WINDOW
                                                   : hello->window;
}

/* ---- the opener ---- */

void psni_meet_begin(psni_peer_t *peer)
{
    psni_ni_t *ni = peer->ni;

    peer->stage = PSNI_STAGE_OPENING;
    ni->opened++;
    peer->token = psni_secret(ni, &ni->opened, sizeof(ni->opened));
    psni_meet_send(ni, &peer->address, peer->cookie, PSNI_OPEN, peer->token, 0);
    psni_peer_timer(peer, psc_clock_now() + AGAIN_NS);
}

void psni_meet_again(psni_peer_t *peer, int64_t now)
{
    if (!psni_peer_bear(peer)) {
        psni_peer_lose(peer);
        return;
    }
    peer->stage = PSNI_STAGE_OPENING;
    psni_meet_send(peer->ni, &peer->address, peer->cookie, PSNI_OPEN,
                   peer->token, 0);
    psni_peer_timer(peer, now + psni_peer_patience(peer));
}

void psni_meet_confirm(psni_peer_t *peer)
{
    psni_meet_send(peer->ni, &peer->address, peer->cookie, PSNI_CONFIRM,
                   peer->token, peer->its_token);
}

static void psni_meet_answered(psni_peer_t *peer, const psni_hello_t *hello)
{
    if (peer->stage == PSNI_STAGE_UP && hello->token == peer->its_token &&
        hello->echo == peer->token) {
        psni_meet_confirm(peer);
        return;
    }
    if ((peer->stage != PSNI_STAGE_OPENING &&
         peer->stage != PSNI_STAGE_ANSWERED) ||
        hello->echo != peer->token)
        return;
    peer->its_token = hello->token;
    psni_meet_heard(peer, hello);
    psni_meet_confirm(peer);
    psni_peer_up(peer, peer->token, hello->token);
}

/* ---- the answerer ---- */

static bool psni_meet_lower(const psni_ni_t *ni, ptl_process_t than)
{
    if (ni->id.phys.nid != than.phys.nid)
        return ni->id.phys.nid < than.phys.nid;
    return ni->id.phys.pid < than.phys.pid;
}

static void psni_meet_opened(psni_ni_t *ni, const struct sockaddr_in *from,
                             psni_peer_t *peer, const psni_hello_t *hello)
{
    ptl_process_t id = psni_process(from);

    if (peer != NULL && psni_meet_lower(ni, id)) {
        if (peer->stage == PSNI_STAGE_OPENING)
            return; /* it answers ours */
        if (peer->stage == PSNI_STAGE_UP && !peer->proven) {
            psni_meet_confirm(peer);
            return;
        }
    }
    if (peer != NULL && peer->stage == PSNI_STAGE_OPENING)
        peer->stage = PSNI_STAGE_ANSWERED;
    psni_meet_send(ni, from, ni->cookie, PSNI_ANSWER,
                   psni_meet_token(ni, id, hello), hello->token);
}

static void psni_meet_confirmed(psni_ni_t *ni, const struct sockaddr_in *from,
                                psni_peer_t *peer, const psni_hello_t *hello)
{
    ptl_process_t id = psni_process(from);

    if (hello->echo != psni_meet_token(ni, id, hello))
        return;
    if (peer == NULL)
        peer = psni_peer_get(ni, id);
    if (peer == NULL || hello->token == peer->last_token)
        return;
    if (peer->stage == PSNI_STAGE_UP) {
        if (peer->token == hello->echo)
            return;
        psni_peer_lose(peer);
    }
    psni_meet_heard(peer, hello);
    psni_peer_up(peer, hello->echo, hello->token);
    peer->proven = true;
    psni_send_ack(peer, 0);
}

void psni_meet_take(psni_ni_t *ni, const struct sockaddr_in *from,
                    const uint8_t *body, size_t length)
{
    ptl_process_t id = psni_process(from);
    psni_peer_t *peer = psni_peer_find(ni, id);
    uint8_t proof[PSC_SIPHASH_SIZE];
    const uint8_t *cookie = ni->cookie;
    psni_hello_t hello;

    if (length != sizeof(hello))
        goto ignored;
    memcpy(&hello, body, sizeof(hello));
    if (hello.role == PSNI_ANSWER) {
        if (peer == NULL || !peer->admitted)
            goto ignored;
        cookie = peer->cookie;
    }
    psni_meet_sign(cookie, id, ni->id, &hello, proof);
    if (!psc_siphash_equal(proof, hello.proof) || hello.token == 0)
        goto ignored;
    if (hello.role == PSNI_OPEN)
        psni_meet_opened(ni, from, peer, &hello);
    else if (hello.role == PSNI_ANSWER)
        psni_meet_answered(peer, &hello);
    else if (hello.role == PSNI_CONFIRM)
        psni_meet_confirmed(ni, from, peer, &hello);
    return;
ignored:
    ni->counters.frames_ignored++;
}
