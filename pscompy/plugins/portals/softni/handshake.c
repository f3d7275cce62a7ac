/* How two NIs come to trust each other. Either or both begin; each says HELLO
 * with a token of its own and an echo of the other's until it has heard its
 * own token back. Every later frame carries the token of its receiver, which
 * only the two know; so who cannot read the wire cannot say anything on it.
 *
 * A HELLO is signed with a cookie: the receiver's, or the sender's if it was
 * not told the receiver's. Whoever cannot sign gets no answer.
 *
 * A process that starts anew under an old address says HELLO with a token that
 * its peers do not know. They offer it a token that is new too, and only when
 * that comes back (not by an old HELLO that was late) what was under way to
 * the predecessor has failed. */
#include <string.h>

#include "nic.h"

typedef struct psni_identity {
    uint32_t nid, pid;
} psni_identity_t;

uint64_t psni_secret(const psni_ni_t *ni, const void *bytes, size_t length)
{
    uint8_t hash[PSC_SIPHASH_SIZE];

    psc_siphash(ni->secret, bytes, length, hash);
    return psc_siphash_load(hash);
}

static uint64_t psni_meet_token(psni_ni_t *ni)
{
    ni->tokens++;
    return psni_secret(ni, &ni->tokens, sizeof(ni->tokens));
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

static void psni_meet_send(psni_peer_t *peer, uint64_t token, uint64_t echo)
{
    psni_ni_t *ni = peer->ni;
    psni_packet_t *packet = &ni->packets[0];
    psni_head_t head = {.magic = PSNI_MAGIC, .kind = PSNI_FRAME_HELLO};
    psni_hello_t hello = {.own = !peer->admitted,
                          .up = peer->stage == PSNI_STAGE_UP,
                          .uid = ni->uid,
                          .token = token,
                          .echo = echo,
                          .window = ni->room};

    hello.up = hello.up && token == peer->token;
    psni_meet_sign(peer->admitted ? peer->cookie : ni->cookie, ni->id, peer->id,
                   &hello, hello.proof);
    memcpy(packet->head, &head, sizeof(head));
    memcpy(packet->head + sizeof(head), &hello, sizeof(hello));
    packet->iov[0] = (struct iovec){.iov_base = packet->head,
                                    .iov_len = sizeof(head) + sizeof(hello)};
    packet->n_iov = 1;
    psni_wire_send(ni, &peer->address, packet, 1);
}

/* ---- saying it ---- */

void psni_meet_begin(psni_peer_t *peer)
{
    peer->stage = PSNI_STAGE_OPENING;
    peer->token = psni_meet_token(peer->ni);
    peer->its_token = 0;
    psni_meet_send(peer, peer->token, 0);
    psni_peer_timer(peer, psc_clock_now() + psni_peer_patience(peer));
}

void psni_meet_again(psni_peer_t *peer, int64_t now)
{
    if (!psni_peer_bear(peer)) {
        psni_peer_lose(peer);
        return;
    }
    psni_meet_send(peer, peer->token, peer->its_token);
    psni_peer_timer(peer, now + psni_peer_patience(peer));
}

/* ---- hearing it ---- */

static void psni_meet_heard(psni_peer_t *peer, const psni_hello_t *hello)
{
    peer->uid = hello->uid;
    peer->most = hello->window < PSNI_LEAST_WINDOW ? PSNI_LEAST_WINDOW
                                                   : hello->window;
}

/* Another process has taken the place of the one that we knew. */
static void psni_meet_replace(psni_peer_t *peer, uint64_t its_token)
{
    uint64_t token = peer->next_token;

    psni_peer_lose(peer);
    psni_peer_up(peer, token, its_token);
}

static void psni_meet_unknown(psni_peer_t *peer, const psni_hello_t *hello)
{
    if (peer->next_token != 0 && hello->echo == peer->next_token) {
        psni_meet_heard(peer, hello);
        psni_meet_replace(peer, hello->token);
        return;
    }
    if (peer->next_token == 0)
        peer->next_token = psni_meet_token(peer->ni);
    peer->its_next = hello->token;
    psni_meet_send(peer, peer->next_token, hello->token);
}

static void psni_meet_hear(psni_peer_t *peer, const psni_hello_t *hello)
{
    if (peer->stage == PSNI_STAGE_UP && hello->token != peer->its_token) {
        psni_meet_unknown(peer, hello);
        return;
    }
    if (peer->stage == PSNI_STAGE_IDLE)
        psni_meet_begin(peer);
    if (peer->stage == PSNI_STAGE_OPENING) {
        psni_meet_heard(peer, hello);
        peer->its_token = hello->token;
        if (hello->echo == peer->token)
            psni_peer_up(peer, peer->token, hello->token);
    }
    if (!hello->up)
        psni_meet_send(peer, peer->token, peer->its_token);
}

/* A frame with a token that is not yet, or not any more, in use. */
bool psni_meet_proves(psni_peer_t *peer, uint64_t token)
{
    if (peer->stage == PSNI_STAGE_OPENING && peer->its_token != 0 &&
        token == peer->token) {
        psni_peer_up(peer, peer->token, peer->its_token);
        return true;
    }
    if (peer->stage == PSNI_STAGE_UP && peer->next_token != 0 &&
        token == peer->next_token) {
        psni_meet_replace(peer, peer->its_next);
        return true;
    }
    return false;
}

static bool psni_meet_signed(psni_ni_t *ni, ptl_process_t from,
                             const psni_peer_t *peer, const psni_hello_t *hello)
{
    uint8_t proof[PSC_SIPHASH_SIZE];

    if (hello->own && (peer == NULL || !peer->admitted))
        return false;
    psni_meet_sign(hello->own ? peer->cookie : ni->cookie, from, ni->id, hello,
                   proof);
    return psc_siphash_equal(proof, hello->proof) && hello->token != 0;
}

void psni_meet_take(psni_ni_t *ni, const struct sockaddr_in *from,
                    const uint8_t *body, size_t length)
{
    ptl_process_t id = psni_process(from);
    psni_peer_t *peer = psni_peer_find(ni, id);
    psni_hello_t hello;

    if (length != sizeof(hello))
        goto ignored;
    memcpy(&hello, body, sizeof(hello));
    if (!psni_meet_signed(ni, id, peer, &hello))
        goto ignored;
    if (peer == NULL)
        peer = psni_peer_get(ni, id);
    if (peer != NULL)
        psni_meet_hear(peer, &hello);
    return;
ignored:
    ni->counters.frames_ignored++;
}
