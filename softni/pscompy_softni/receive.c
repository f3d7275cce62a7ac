/* Receives frames: checks their sender, stores frames that overtook others, and
 * sends acknowledgements. */
#include <stdlib.h>
#include <string.h>

#include "nic.h"
#include "pscompy/transport/kit/restart.h"

#define OWED_FRAMES 16u
#define OWED_NS 1000000ll
/* maximum number of bytes of stored frames (psni_stored_t), which arrived
 * before earlier ones */
#define STORE_MAX (64u << 20)

/* Keeps a frame that arrived before an earlier one. Returns false if the frame
 * is a duplicate or beyond the window, or if memory for such frames is
 * short. */
static bool psni_arrive_store(psni_peer_t *peer, const psni_head_t *head,
                              const uint8_t *body, size_t length)
{
    psni_ni_t *ni = peer->ni;
    psni_stored_t *stored;

    if (psc_reorder_judge(&peer->order, head->seq) != PSC_REORDER_EARLY ||
        ni->stored + length > STORE_MAX)
        return false;
    stored = malloc(sizeof(*stored) + length);
    if (stored == NULL)
        return false;
    memcpy(stored->bytes, body, length);
    stored->length = length;
    stored->answers = head->answers;
    ni->stored += length;
    psc_reorder_put(&peer->order, head->seq, stored);
    return true;
}

/* Handles the stored frames that are next in order. Returns false if the next
 * one cannot be handled now. Answers that are sent while a frame is handled
 * acknowledge the frame, so it counts as taken before it is handled. */
static bool psni_arrive_stored(psni_peer_t *peer)
{
    psni_stored_t *stored;

    for (bool any = false; (stored = psc_reorder_take(&peer->order));
         any = true) {
        if (!psni_target_take(peer, stored->answers, stored->bytes,
                              stored->length)) {
            psc_reorder_undo(&peer->order, stored);
            return any;
        }
        psni_stored_free(peer, stored);
    }
    return true;
}

/* Handles the frame that is next in order, or the stored copy of it that could
 * not be handled before. */
static bool psni_arrive_next(psni_peer_t *peer, const psni_head_t *head,
                             const uint8_t *body, size_t length)
{
    if (psc_reorder_next(&peer->order) != NULL)
        return psni_arrive_stored(peer);
    psc_reorder_pass(&peer->order);
    if (psni_target_take(peer, head->answers, body, length))
        return true;
    psc_reorder_undo(&peer->order, NULL);
    return false;
}

/* Notes that a received frame is to be acknowledged. If `now` is set,
 * acknowledges it at once, because a frame is missing or the sender asks for
 * it. */
static void psni_arrive_owe(psni_peer_t *peer, size_t length, bool now)
{
    if (peer->is_self) {
        psni_head_t head = {.ack = peer->order.expected,
                            .sack = psc_reorder_early(&peer->order)};

        psni_send_acknowledged(peer, &head);
        return;
    }
    if (!now && peer->acked == peer->order.expected)
        /* a frame that was sent meanwhile has carried the acknowledgement */
        return;
    peer->owed++;
    peer->owed_cost += psni_frame_cost(length);
    if (now || peer->owed >= OWED_FRAMES ||
        peer->owed_cost >= peer->ni->room / 8) {
        psni_send_ack(peer, 0);
        return;
    }
    if (peer->owed_by != PSNI_NEVER)
        return;
    peer->owed_by = psc_clock_now() + OWED_NS;
    if (!psc_link_listed(&peer->busy))
        psc_list_push(&peer->ni->busy, &peer->busy);
    psni_timer(peer->ni, peer->owed_by);
}

static void psni_arrive_data(psni_peer_t *peer, const psni_head_t *head,
                             const uint8_t *body, size_t length)
{
    bool now = (head->flags & PSNI_FLAG_ACK_NOW) != 0;

    if (head->seq == peer->order.expected) {
        if (!psni_arrive_next(peer, head, body, length)) {
            peer->ni->counters.frames_ignored++;
            return;
        }
        psni_arrive_stored(peer);
    } else {
        if (!psni_arrive_store(peer, head, body, length))
            peer->ni->counters.frames_ignored++;
        now = true;
    }
    psni_arrive_owe(peer, length, now);
    if (peer->incoming.active && peer->deadline == PSNI_NEVER)
        psni_peer_expect(peer, psc_clock_now());
}

static void psni_arrive(psni_ni_t *ni, const struct sockaddr_in *from,
                        const uint8_t *bytes, size_t length)
{
    psni_head_t head;
    psni_peer_t *peer;

    ni->counters.frames_received++;
    if (length < sizeof(head))
        goto ignored;
    memcpy(&head, bytes, sizeof(head));
    bytes += sizeof(head);
    length -= sizeof(head);
    if (head.magic != PSNI_MAGIC)
        goto ignored;
    if (head.kind == PSNI_FRAME_HELLO) {
        psni_handshake_take(ni, from, bytes, length);
        return;
    }
    peer = psni_peer_find(ni, psni_process(from));
    if (peer == NULL)
        goto ignored;
    if ((peer->state != PSNI_PEER_UP || head.token != peer->token) &&
        !psni_handshake_proves(peer, head.token))
        goto ignored;
    peer->unanswered = peer->refusals = 0;
    peer->refused = false;
    psni_send_acknowledged(peer, &head);
    if (head.kind == PSNI_FRAME_DATA)
        psni_arrive_data(peer, &head, bytes, length);
    else if ((head.flags & PSNI_FLAG_ACK_NOW) != 0)
        psni_send_ack(peer, 0);
    return;
ignored:
    ni->counters.frames_ignored++;
}

bool psni_wire_poll(psni_ni_t *ni)
{
    struct sockaddr_in from;
    struct iovec iov = {.iov_base = ni->datagram,
                        .iov_len = sizeof(ni->datagram)};
    struct msghdr message = {.msg_name = &from,
                             .msg_namelen = sizeof(from),
                             .msg_iov = &iov,
                             .msg_iovlen = 1};
    ssize_t n = PSC_RESTART(recvmsg(ni->socket, &message, 0));

    if (n < 0)
        return psni_wire_again(ni, errno);
    if (message.msg_namelen != sizeof(from) || from.sin_family != AF_INET) {
        ni->counters.frames_ignored++;
        return true;
    }
    psni_arrive(ni, &from, ni->datagram, (size_t)n);
    return true;
}
