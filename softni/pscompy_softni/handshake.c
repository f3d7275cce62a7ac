/* The handshake of two NIs. Each sends the frame HELLO, with a token of its own
 * and an echo of the other's token, until it receives its own token back. Every
 * later frame carries the token of its receiver, which only the two know, so
 * only a host that can observe the traffic can inject frames.
 *
 * A HELLO is signed with the cookie of the receiver, or with that of the sender
 * if the sender does not know the receiver's cookie. A HELLO that is not signed
 * properly gets no answer.
 *
 * A process that opens the address of an earlier one sends HELLO with a token
 * that its peers do not know. They offer the new process a new token. The
 * operations to the earlier process fail only when that token is echoed. An old
 * HELLO that arrives late cannot contain the new token. */
#include <string.h>

#include "nic.h"

void psni_handshake_again(psni_peer_t *peer, int64_t now)
{
    if (!psni_peer_may_retry(peer)) {
        psni_peer_lose(peer);
        return;
    }
    psni_handshake_send(peer, peer->token, peer->its_token);
    psni_peer_timer(peer, now + psni_peer_resend_delay(peer));
}

/* ---- receiving HELLO ---- */

static void psni_handshake_note(psni_peer_t *peer, const psni_hello_t *hello)
{
    peer->uid = hello->uid;
    peer->most =
        hello->window < PSNI_LEAST_WINDOW ? PSNI_LEAST_WINDOW : hello->window;
}

/* Fails the operations to an earlier process of the peer's address, and
 * completes the handshake with the process that has opened the address
 * since. */
static void psni_handshake_replace(psni_peer_t *peer, uint64_t its_token)
{
    uint64_t token = peer->next_token;

    psni_peer_lose(peer);
    psni_peer_up(peer, token, its_token);
}

static void psni_handshake_unknown(psni_peer_t *peer, const psni_hello_t *hello)
{
    if (peer->next_token != 0 && hello->echo == peer->next_token) {
        psni_handshake_note(peer, hello);
        psni_handshake_replace(peer, hello->token);
        return;
    }
    if (peer->next_token == 0)
        peer->next_token = psni_handshake_token(peer->ni);
    peer->its_next = hello->token;
    psni_handshake_send(peer, peer->next_token, hello->token);
}

static void psni_handshake_receive(psni_peer_t *peer, const psni_hello_t *hello)
{
    if (peer->state == PSNI_PEER_UP && hello->token != peer->its_token) {
        psni_handshake_unknown(peer, hello);
        return;
    }
    if (peer->state == PSNI_PEER_IDLE)
        psni_handshake_begin(peer);
    if (peer->state == PSNI_PEER_OPENING) {
        psni_handshake_note(peer, hello);
        peer->its_token = hello->token;
        if (hello->echo == peer->token)
            psni_peer_up(peer, peer->token, hello->token);
    }
    if (!hello->up)
        psni_handshake_send(peer, peer->token, peer->its_token);
}

/* Handles a frame of a peer whose handshake is not complete. Returns true if
 * the frame carries the token that this NI has offered; then the handshake is
 * complete. */
bool psni_handshake_proves(psni_peer_t *peer, uint64_t token)
{
    if (peer->state == PSNI_PEER_OPENING && peer->its_token != 0 &&
        token == peer->token) {
        psni_peer_up(peer, peer->token, peer->its_token);
        return true;
    }
    if (peer->state == PSNI_PEER_UP && peer->next_token != 0 &&
        token == peer->next_token) {
        psni_handshake_replace(peer, peer->its_next);
        return true;
    }
    return false;
}

static bool psni_handshake_signed(psni_ni_t *ni, ptl_process_t from,
                                  const psni_peer_t *peer,
                                  const psni_hello_t *hello)
{
    uint8_t proof[PSC_SIPHASH_SIZE];

    if (hello->own && (peer == NULL || !peer->admitted))
        return false;
    psni_handshake_sign(hello->own ? peer->cookie : ni->cookie, from, ni->id,
                        hello, proof);
    return psc_siphash_equal(proof, hello->proof) && hello->token != 0;
}

void psni_handshake_take(psni_ni_t *ni, const struct sockaddr_in *from,
                         const uint8_t *body, size_t length)
{
    ptl_process_t id = psni_process(from);
    psni_peer_t *peer = psni_peer_find(ni, id);
    psni_hello_t hello;

    if (length != sizeof(hello))
        goto ignored;
    memcpy(&hello, body, sizeof(hello));
    if (!psni_handshake_signed(ni, id, peer, &hello))
        goto ignored;
    if (peer == NULL)
        peer = psni_peer_get(ni, id);
    if (peer != NULL)
        psni_handshake_receive(peer, &hello);
    return;
ignored:
    ni->counters.frames_ignored++;
}
