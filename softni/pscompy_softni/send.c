/* Sending frames. At most PSNI_WINDOW frames are in flight at a time, and at
 * most a window of bytes, which the peer's receive buffer limits; frames are
 * resent when later ones were acknowledged, or when the peer was silent for a
 * while. The window of bytes halves with each loss and grows back as frames
 * are acknowledged (Jacobson, "Congestion avoidance and control", 1988). */
#include <string.h>

#include "nic.h"

/* number of later frames that must have arrived before a missing frame counts
 * as lost */
#define LATER_ACKS 3
#define RESENDS 8u
#define CHOKED_NS 1000000ll
#define ANSWER_NS 1000000ll

/* ---- sending ---- */

/* Sends n packets to the peer. Packets for which the socket has no room are
 * sent a moment later, when the timer of the peer expires. */
static void psni_send_batch(psni_peer_t *peer, const uint32_t *seqs, unsigned n)
{
    psni_ni_t *ni = peer->ni;
    unsigned sent = psni_wire_send(ni, &peer->address, ni->packets, n);

    if (sent == n)
        return;
    for (unsigned i = sent; i < n; i++)
        psni_frame_at(peer, seqs[i])->sent_at = 0;
    psni_peer_timer(peer, psc_clock_now() + CHOKED_NS);
}

static void psni_send_out(psni_peer_t *peer, bool flush)
{
    uint32_t seqs[PSNI_BATCH];
    unsigned n = 0;
    int64_t now;

    if (peer->state != PSNI_PEER_UP ||
        (psc_list_empty(&peer->queue) && peer->n_answers == 0))
        return;
    now = psc_clock_now();
    if (peer->deadline == PSNI_NEVER || peer->oldest == peer->next_seq)
        psni_peer_timer(peer, now + psni_peer_resend_delay(peer));
    while (psni_frame_next(peer, now, flush)) {
        seqs[n] = peer->next_seq - 1;
        psni_frame_pack(peer, seqs[n], &peer->ni->packets[n]);
        if (++n == PSNI_BATCH) {
            psni_send_batch(peer, seqs, n);
            n = 0;
        }
    }
    if (n > 0)
        psni_send_batch(peer, seqs, n);
}

void psni_send_pump(psni_peer_t *peer)
{
    psni_send_out(peer, false);
}

void psni_send_answer(psni_op_t *op)
{
    psni_peer_t *peer = op->peer;
    psni_ni_t *ni = peer->ni;

    op->done = true;
    psc_list_push(&peer->answers, &op->queue);
    if (++peer->n_answers >= PSNI_ANSWERS || peer->is_self ||
        op->message.fail != PTL_NI_OK) {
        psni_send_out(peer, true);
        return;
    }
    if (psc_list_empty(&ni->answering)) {
        ni->idle = 0;
        ni->answers_by = psc_clock_now() + ANSWER_NS;
        psni_timer(ni, ni->answers_by);
    }
    if (!psc_link_listed(&peer->answering))
        psc_list_push(&ni->answering, &peer->answering);
}

/* Sends the ACKs of all peers in `answering`. The ACKs of a peer whose window
 * is full are sent when an acknowledgement makes room. */
void psni_send_answers(psni_ni_t *ni)
{
    psc_link_t *link;

    while ((link = psc_list_pop(&ni->answering)) != NULL)
        psni_send_out(psc_container_of(link, psni_peer_t, answering), true);
}

/* Queues an operation. ACKs that wait are sent before a long message, because
 * the peer may wait for them. */
void psni_send_queue(psni_op_t *op)
{
    psni_peer_t *peer = op->peer;

    if (peer->n_answers > 0 && op->length > peer->frame_size)
        psni_send_out(peer, true);
    psc_list_push(&peer->queue, &op->queue);
    if (peer->state == PSNI_PEER_IDLE)
        psni_handshake_begin(peer);
    else if (peer->queue.next == &op->queue)
        psni_send_pump(peer);
}

void psni_send_ack(psni_peer_t *peer, uint8_t flags)
{
    psni_packet_t *packet = &peer->ni->packets[0];
    psni_head_t head = psni_head_for(peer, PSNI_FRAME_ACK);

    head.flags = flags;
    memcpy(packet->head, &head, sizeof(head));
    psni_wire_send_head(peer, sizeof(head));
}

/* ---- sending again ---- */

static void psni_send_shrink(psni_peer_t *peer)
{
    peer->window /= 2;
    if (peer->window < PSNI_LEAST_WINDOW)
        peer->window = PSNI_LEAST_WINDOW;
}

/* Resends at most RESENDS frames: those with numbers before `end` that are not
 * acknowledged and were not sent after the time `before`. */
static void psni_send_missing(psni_peer_t *peer, uint32_t end, int64_t before,
                              int64_t now)
{
    uint32_t seqs[RESENDS];
    unsigned n = 0;

    for (uint32_t seq = peer->oldest; seq != end && n < RESENDS; seq++) {
        psni_frame_t *frame = psni_frame_at(peer, seq);

        if (frame->acked_early || frame->sent_at > before)
            continue;
        frame->resent = true;
        frame->sent_at = now;
        seqs[n] = seq;
        psni_frame_pack(peer, seq, &peer->ni->packets[n++]);
    }
    peer->ni->counters.frames_resent += n;
    if (n > 0)
        psni_send_batch(peer, seqs, n);
}

void psni_send_again(psni_peer_t *peer, int64_t now)
{
    psni_send_shrink(peer);
    psni_send_missing(peer, peer->next_seq, now - 1, now);
}

/* ---- acknowledgements ---- */

static void psni_send_measure(psni_peer_t *peer, const psni_frame_t *frame,
                              int64_t now)
{
    int64_t trip = now - frame->sent_at;
    int64_t error = trip - peer->trip;

    if (frame->resent || frame->acked_early || frame->sent_at == 0)
        /* the round-trip time cannot be measured: the acknowledgement may
         * belong to another transmission of the frame, or may have waited for
         * an earlier frame */
        return;
    if (peer->trip == 0) {
        peer->trip = trip > 0 ? trip : 1;
        peer->spread = trip / 2;
        return;
    }
    peer->trip += error / 8;
    peer->spread += ((error < 0 ? -error : error) - peer->spread) / 4;
}

static void psni_frame_end(psni_peer_t *peer, int64_t now)
{
    psni_frame_t *frame = psni_frame_at(peer, peer->oldest++);
    psni_op_t *op = frame->op;
    uint64_t cost = psni_frame_cost(frame->length);

    psni_send_measure(peer, frame, now);
    frame->op = NULL;
    peer->cost -= cost;
    peer->window += cost / 4;
    if (peer->window > peer->most)
        peer->window = peer->most;
    for (unsigned i = 0; i < frame->n_answers; i++)
        psni_op_sent(frame->answers[i]);
    if (op != NULL && --op->frames == 0 && op->done)
        psni_op_sent(op);
}

/* Marks the frames that arrived although earlier ones are missing. Sets *end_p
 * to a frame number: each missing frame before it was overtaken by at least
 * LATER_ACKS later frames. */
static void psni_send_mark(psni_peer_t *peer, uint64_t sack, uint32_t *end_p)
{
    uint32_t under_way = peer->next_seq - peer->oldest;
    int later = 0;

    *end_p = peer->oldest;
    for (uint32_t i = under_way; i-- > 1;) {
        if ((sack >> (i - 1) & 1) == 0)
            continue;
        psni_frame_at(peer, peer->oldest + i)->acked_early = true;
        if (++later == LATER_ACKS)
            *end_p = peer->oldest + i;
    }
}

void psni_send_acknowledged(psni_peer_t *peer, const psni_head_t *head)
{
    uint32_t under_way = peer->next_seq - peer->oldest;
    uint32_t acked = head->ack - peer->oldest;
    uint32_t end;
    int64_t now;

    if (under_way == 0 || acked > under_way)
        return;
    if (acked == 0 && head->sack == 0)
        return;
    now = psc_clock_now();
    for (uint32_t i = 0; i < acked; i++)
        psni_frame_end(peer, now);
    if (head->sack != 0) {
        psni_send_mark(peer, head->sack, &end);
        if (end != peer->oldest && !psni_frame_at(peer, peer->oldest)->resent)
            psni_send_shrink(peer);
        psni_send_missing(peer, end, now - psni_peer_resend_delay(peer) / 2,
                          now);
    }
    if (acked > 0) {
        psni_send_out(peer, !psc_link_listed(&peer->answering));
        psni_peer_expect(peer, now);
    }
}

void psni_send_reset(psni_peer_t *peer)
{
    for (uint32_t seq = peer->oldest; seq != peer->next_seq; seq++)
        psni_frame_at(peer, seq)->op = NULL;
    while (psc_list_pop(&peer->queue) != NULL)
        continue;
    while (psc_list_pop(&peer->answers) != NULL)
        continue;
    psc_list_remove(&peer->answering);
    peer->n_answers = 0;
    peer->oldest = peer->next_seq = 0;
    peer->cost = 0;
}
