/* Making and sending HELLO frames; handshake.c says what they are for. */
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

uint64_t psni_handshake_token(psni_ni_t *ni)
{
    ni->tokens++;
    return psni_secret(ni, &ni->tokens, sizeof(ni->tokens));
}

void psni_handshake_sign(const uint8_t *cookie, ptl_process_t from,
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

void psni_handshake_send(psni_peer_t *peer, uint64_t token, uint64_t echo)
{
    psni_ni_t *ni = peer->ni;
    psni_packet_t *packet = &ni->packets[0];
    psni_head_t head = {.magic = PSNI_MAGIC, .kind = PSNI_FRAME_HELLO};
    psni_hello_t hello = {.own = !peer->admitted,
                          .up = peer->state == PSNI_PEER_UP,
                          .uid = ni->uid,
                          .token = token,
                          .echo = echo,
                          .window = ni->room};

    hello.up = hello.up && token == peer->token;
    psni_handshake_sign(peer->admitted ? peer->cookie : ni->cookie, ni->id,
                        peer->id, &hello, hello.proof);
    memcpy(packet->head, &head, sizeof(head));
    memcpy(packet->head + sizeof(head), &hello, sizeof(hello));
    psni_wire_send_head(peer, sizeof(head) + sizeof(hello));
}

void psni_handshake_begin(psni_peer_t *peer)
{
    peer->state = PSNI_PEER_OPENING;
    peer->token = psni_handshake_token(peer->ni);
    peer->its_token = 0;
    psni_handshake_send(peer, peer->token, 0);
    psni_peer_timer(peer, psc_clock_now() + psni_peer_resend_delay(peer));
}
