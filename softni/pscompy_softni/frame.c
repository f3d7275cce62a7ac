/* Makes frames: decides what the next frame carries, and writes its bytes. A
 * psni_frame_t has no copy of the payload; a resend reads the payload from the
 * memory of the operation again. */
#include <string.h>

#include "nic.h"

/* OVERHEAD, PAGED and PAGE estimate how much of its receiver's socket buffer a
 * datagram takes: kernels allocate the next power of two up to 16 KiB, and
 * whole pages above. */
#define OVERHEAD 1024u
#define PAGED 16384u
#define PAGE 4096u

uint64_t psni_frame_cost(uint64_t length)
{
    return (length < PAGED ? 2 * length : length + PAGE) + OVERHEAD;
}

psni_frame_t *psni_frame_at(psni_peer_t *peer, uint32_t seq)
{
    return &peer->frames[seq % PSNI_WINDOW];
}

psni_head_t psni_head_for(psni_peer_t *peer, psni_frame_kind_t kind)
{
    peer->acked = peer->order.expected;
    peer->owed = 0;
    peer->owed_cost = 0;
    peer->owed_by = PSNI_NEVER;
    return (psni_head_t){.magic = PSNI_MAGIC,
                         .kind = (uint8_t)kind,
                         .token = peer->its_token,
                         .ack = peer->order.expected,
                         .sack = psc_reorder_early(&peer->order)};
}

/* Returns true if the user waits for this frame's acknowledgement: it is the
 * last frame of a reply, or of a put without ACK. */
static bool psni_frame_urgent(const psni_frame_t *frame)
{
    const psni_op_t *op = frame->op;
    unsigned options;

    if (!frame->last)
        return false;
    if (op->message.verb != PSNI_PUT)
        return op->message.verb == PSNI_REPLY;
    options = op->md->md.options;
    return !op->send_reported && op->message.ack_req == PTL_NO_ACK_REQ &&
           ((options & PTL_MD_EVENT_CT_SEND) != 0 ||
            (op->md->eq != NULL &&
             (options & (PTL_MD_EVENT_SEND_DISABLE |
                         PTL_MD_EVENT_SUCCESS_DISABLE)) == 0));
}

static size_t psni_frame_pack_message(const psni_frame_t *frame, uint8_t *bytes)
{
    psni_more_t more = {.verb = PSNI_MORE, .offset = frame->offset};

    if (frame->first) {
        memcpy(bytes, &frame->op->message, sizeof(psni_message_t));
        return sizeof(psni_message_t);
    }
    memcpy(bytes, &more, sizeof(more));
    return sizeof(more);
}

void psni_frame_pack(psni_peer_t *peer, uint32_t seq, psni_packet_t *packet)
{
    psni_frame_t *frame = psni_frame_at(peer, seq);
    psni_op_t *op = frame->op;
    psni_head_t head = psni_head_for(peer, PSNI_FRAME_DATA);
    size_t size = sizeof(head);

    head.seq = seq;
    head.answers = (uint16_t)frame->n_answers;
    head.flags = op != NULL && psni_frame_urgent(frame) ? PSNI_FLAG_ACK_NOW : 0;
    memcpy(packet->head, &head, sizeof(head));
    for (unsigned i = 0; i < frame->n_answers; i++) {
        memcpy(packet->head + size, &frame->answers[i]->message,
               sizeof(psni_message_t));
        size += sizeof(psni_message_t);
    }
    packet->n_iov = 1;
    if (op != NULL) {
        size += psni_frame_pack_message(frame, packet->head + size);
        packet->n_iov +=
            psni_region_gather(&op->region, op->offset + frame->offset,
                               frame->length, packet->iov + 1, PSNI_PIECES);
    }
    packet->iov[0] = (struct iovec){.iov_base = packet->head, .iov_len = size};
}

/* Returns how many bytes of an operation the next frame carries. */
static uint64_t psni_frame_share(const psni_peer_t *peer, const psni_op_t *op)
{
    uint64_t left = op->length - op->sent;
    uint64_t heads = op->begun ? sizeof(psni_more_t) : sizeof(psni_message_t);
    uint64_t room;

    if (peer->n_answers > 0)
        heads += PSNI_ANSWERS * sizeof(psni_message_t);
    room = peer->frame_size - heads;
    return left < room ? left : room;
}

static void psni_frame_carry(psni_frame_t *frame, psni_op_t *op, uint64_t share)
{
    frame->op = op;
    frame->offset = op->sent;
    frame->length = (uint32_t)share;
    frame->first = !op->begun;
    op->begun = true;
    op->sent += share;
    op->frames++;
    op->done = frame->last = op->sent == op->length;
    if (op->done)
        psc_list_remove(&op->queue);
}

static void psni_frame_carry_answers(psni_peer_t *peer, psni_frame_t *frame)
{
    while (peer->n_answers > 0 && frame->n_answers < PSNI_ANSWERS) {
        psc_link_t *link = psc_list_pop(&peer->answers);

        frame->answers[frame->n_answers++] =
            psc_container_of(link, psni_op_t, queue);
        peer->n_answers--;
    }
    if (peer->n_answers == 0)
        psc_list_remove(&peer->answering);
}

bool psni_frame_next(psni_peer_t *peer, int64_t now, bool flush)
{
    psni_frame_t *frame = psni_frame_at(peer, peer->next_seq);
    psni_op_t *op = NULL;
    uint64_t share = 0;

    if (!psc_list_empty(&peer->queue)) {
        op = psc_container_of(peer->queue.next, psni_op_t, queue);
        share = psni_frame_share(peer, op);
    } else if (!flush || peer->n_answers == 0) {
        return false;
    }
    if (peer->next_seq - peer->oldest == PSNI_WINDOW ||
        (peer->oldest != peer->next_seq &&
         peer->cost + psni_frame_cost(share) > peer->window))
        return false;
    *frame = (psni_frame_t){.sent_at = now};
    if (peer->n_answers > 0)
        psni_frame_carry_answers(peer, frame);
    if (op != NULL)
        psni_frame_carry(frame, op, share);
    peer->cost += psni_frame_cost(share);
    peer->next_seq++;
    return true;
}
