/* Handles messages of peers, frame after frame in their order. Everything that
 * a peer sends is checked here; malformed messages are dropped and counted. */
#include <stdlib.h>
#include <string.h>

#include "nic.h"

static psni_arrival_t psni_arrival_of(const psni_peer_t *peer,
                                      const psni_message_t *message)
{
    return (psni_arrival_t){.verb = (psni_verb_t)message->verb,
                            .initiator = peer->id,
                            .uid = peer->uid,
                            .match_bits = message->match_bits,
                            .hdr_data = message->hdr_data,
                            .rlength = message->length,
                            .remote_offset = message->remote_offset};
}

/* ---- answers ---- */

static void psni_target_ack(psni_peer_t *peer, const psni_incoming_t *in,
                            bool silent)
{
    psni_message_t message = {
        .verb = PSNI_ACK,
        .id = in->message.id,
        .fail = in->arrival.fail,
        .flags = (uint8_t)((silent ? PSNI_SILENT : 0) |
                           (in->header != NULL ? PSNI_UNEXPECTED : 0)),
        .length = in->arrival.mlength,
        .remote_offset = in->arrival.offset,
    };
    psni_op_t *op;

    if (in->message.ack_req == PTL_NO_ACK_REQ)
        return;
    op = psni_op_make(peer, PSNI_KIND_ANSWER, &message);
    if (op != NULL) /* psni_target_take has reserved its memory */
        psni_send_answer(op);
}

/* ---- data of puts and replies ---- */

static void psni_target_end(psni_peer_t *peer)
{
    psni_incoming_t in = peer->incoming;
    bool silent = false;

    peer->incoming.active = false;
    if (in.op != NULL) {
        psni_op_end(in.op, &in.message);
        return;
    }
    if (in.message.verb != PSNI_PUT)
        return;
    if (in.entry != NULL) {
        silent = (in.entry->me.options & PTL_ME_ACK_DISABLE) != 0;
        psni_match_end(in.entry, in.header, &in.arrival);
    }
    psni_target_ack(peer, &in, silent);
}

static void psni_target_copy(psni_peer_t *peer, const uint8_t *bytes,
                             uint64_t n)
{
    psni_incoming_t *in = &peer->incoming;
    uint64_t room;

    if (in->op != NULL) {
        psni_region_write(&in->op->region, in->op->offset + in->received, bytes,
                          n);
    } else if (in->entry != NULL && in->received < in->arrival.mlength) {
        room = in->arrival.mlength - in->received;
        if (n > room)
            n = room;
        psni_region_write(&in->entry->region, in->arrival.offset + in->received,
                          bytes, n);
        peer->ni->counters.bytes_copied += n;
    }
}

static void psni_target_bytes(psni_peer_t *peer, const uint8_t *bytes,
                              uint64_t n)
{
    psni_incoming_t *in = &peer->incoming;

    if (n > in->message.length - in->received) {
        peer->ni->counters.frames_ignored++;
        return;
    }
    psni_target_copy(peer, bytes, n);
    in->received += n;
    if (in->received == in->message.length)
        psni_target_end(peer);
}

static void psni_target_more(psni_peer_t *peer, const uint8_t *body,
                             size_t length)
{
    psni_more_t more;

    if (length >= sizeof(more))
        memcpy(&more, body, sizeof(more));
    if (length <= sizeof(more) || !peer->incoming.active ||
        more.offset != peer->incoming.received) {
        peer->ni->counters.frames_ignored++;
        return;
    }
    psni_target_bytes(peer, body + sizeof(more), length - sizeof(more));
}

/* ---- first frames ---- */

static void psni_target_put(psni_peer_t *peer, const psni_message_t *message)
{
    psni_incoming_t *in = &peer->incoming;

    *in = (psni_incoming_t){.active = true,
                            .message = *message,
                            .arrival = psni_arrival_of(peer, message)};
    psni_match(peer->ni, message->pt_index, &in->arrival, &in->entry,
               &in->header);
}

/* Handles the first frame of a reply. A reply that no get waits for, or that is
 * too long, is dropped. */
static void psni_target_reply(psni_peer_t *peer, const psni_message_t *message)
{
    psni_op_t *op = psni_op_find(peer, message->id, PSNI_GET);

    if (op == NULL || message->length > op->message.length) {
        peer->ni->counters.frames_ignored++;
        op = NULL;
    }
    peer->incoming =
        (psni_incoming_t){.active = true, .message = *message, .op = op};
}

static void psni_target_get(psni_peer_t *peer, const psni_message_t *message)
{
    psni_message_t reply = {.verb = PSNI_REPLY, .id = message->id};
    psni_op_t *op = psni_op_make(peer, PSNI_KIND_ANSWER, &reply);

    if (op == NULL)
        return;
    op->arrival = psni_arrival_of(peer, message);
    psni_match(peer->ni, message->pt_index, &op->arrival, &op->entry,
               &op->header);
    op->message.fail = op->arrival.fail;
    op->message.remote_offset = op->arrival.offset;
    if (op->entry != NULL) {
        op->region = op->entry->region;
        op->offset = op->arrival.offset;
        op->length = op->message.length = op->arrival.mlength;
    }
    psni_send_queue(op);
}

static void psni_target_told(psni_peer_t *peer, const psni_message_t *message)
{
    psni_op_t *op = psni_op_find(peer, message->id, PSNI_PUT);

    if (op == NULL || message->verb != PSNI_ACK ||
        message->length > op->message.length ||
        op->message.ack_req == PTL_NO_ACK_REQ) {
        peer->ni->counters.frames_ignored++;
        return;
    }
    psni_op_end(op, message);
}

static void psni_target_begin(psni_peer_t *peer, const uint8_t *body,
                              size_t length)
{
    psni_message_t message;

    if (length < sizeof(message) || peer->incoming.active) {
        peer->ni->counters.frames_ignored++;
        return;
    }
    memcpy(&message, body, sizeof(message));
    switch (message.verb) {
    case PSNI_PUT:
        psni_target_put(peer, &message);
        break;
    case PSNI_REPLY:
        psni_target_reply(peer, &message);
        break;
    case PSNI_GET:
        psni_target_get(peer, &message);
        return;
    default:
        peer->ni->counters.frames_ignored++;
        return;
    }
    psni_target_bytes(peer, body + sizeof(message), length - sizeof(message));
}

static void psni_target_answers(psni_peer_t *peer, unsigned answers,
                                const uint8_t *body)
{
    psni_message_t message;

    for (unsigned i = 0; i < answers; i++) {
        memcpy(&message, body + i * sizeof(message), sizeof(message));
        psni_target_told(peer, &message);
    }
}

bool psni_target_take(psni_peer_t *peer, unsigned answers, const uint8_t *body,
                      size_t length)
{
    size_t before = answers * sizeof(psni_message_t);
    uint8_t verb = length > before ? body[before] : 0;

    if (length < before) {
        peer->ni->counters.frames_ignored++;
        return true;
    }
    if ((verb == PSNI_PUT || verb == PSNI_GET || verb == PSNI_MORE) &&
        !psni_pool_reserve(&peer->ni->pools[PSNI_KIND_ANSWER]))
        return false;
    psni_target_answers(peer, answers, body);
    body += before;
    length -= before;
    if (verb == PSNI_MORE)
        psni_target_more(peer, body, length);
    else if (length > 0)
        psni_target_begin(peer, body, length);
    return true;
}

void psni_target_abort(psni_peer_t *peer)
{
    psni_incoming_t *in = &peer->incoming;

    if (in->active && in->entry != NULL) {
        in->arrival.fail = PTL_NI_UNDELIVERABLE;
        if (in->arrival.mlength > in->received)
            in->arrival.mlength = in->received;
        psni_match_end(in->entry, in->header, &in->arrival);
    }
    in->active = false;
}

void psni_stored_free(psni_peer_t *peer, psni_stored_t *stored)
{
    peer->ni->stored -= stored->length;
    free(stored);
}

void psni_arrive_reset(psni_peer_t *peer)
{
    psni_stored_t *stored;

    while ((stored = psc_reorder_drop(&peer->order)) != NULL)
        psni_stored_free(peer, stored);
    peer->order.expected = 0;
    peer->owed = 0;
    psni_target_abort(peer);
}
