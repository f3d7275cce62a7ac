/* A peer that knows the key and then violates the protocol: invalid frames,
 * eager messages without credit, frames after CLOSE. Side a obeys the protocol;
 * it may lose this connection, and nothing else. */
#include "hostile.h"

#include "harness.h"
#include "pscompy/core/conn.h"
#include "pscompy/proto/rndv.h"
#include "pscompy/proto/protocol.h"

enum { ROUNDS = 8, VICTIMS = 60, FRAMES = 40, POSTED = 12, LARGE = 200000 };

static unsigned dice_state;

static unsigned dice(unsigned sides)
{
    dice_state = dice_state * 1664525u + 1013904223u;
    return (dice_state >> 8) % sides;
}

/* ---- frames ---- */

typedef union frame {
    psc_wire_credit_t credit;
    psc_wire_eager_t eager;
    psc_wire_rts_t rts;
    psc_wire_rtr_t rtr;
    psc_wire_frag_t frag;
    psc_wire_fin_t fin;
    psc_wire_rma_t rma;
    psc_wire_taken_t taken;
    psc_wire_lane_t lane;
    psc_wire_seen_t seen;
    psc_wire_resume_t resume;
    psc_wire_advertise_t expose;
    psc_wire_conceal_t conceal;
    psc_wire_placed_t placed;
    uint8_t bytes[PSC_AM_HEADER_MAX];
} frame_t;

static const uint8_t header_lens[PSC_WIRE_COUNT] = {
#define HEADER_LEN(name, type) sizeof(type),
    PSC_WIRE_LIST(HEADER_LEN)
#undef HEADER_LEN
};

/* Ids of requests that exist, or have existed, or will exist. */
static uint64_t some_id(void)
{
    return (uint64_t)(1 + dice(3)) << 32 | dice(2 * POSTED);
}

static uint64_t some_length(void)
{
    static const uint64_t lengths[] = {
        0, 1, 8, 1000, LARGE, 1 << 30, 1ull << 31, UINT64_MAX, LARGE - 1};

    return lengths[dice(sizeof lengths / sizeof *lengths)];
}

static uint32_t some_context(void)
{
    const uint32_t contexts[] = {
        CONTEXT,
        CONTEXT,
        CONTEXT,
        CONTEXT + (1u << PSC_TAG_NUMBER_BITS),
        psc_wire_context(PSC_CONTEXT_AM, (uint16_t)dice(200)),
        PSC_CONTEXT_RMA};

    return contexts[dice(sizeof contexts / sizeof *contexts)];
}

static uint32_t some_tag(void)
{
    return dice(50) == 0 ? UINT32_MAX : dice(3);
}

static void frame_fill(frame_t *frame, psc_wire_id_t id)
{
    for (size_t i = 0; i < sizeof frame->bytes; i++)
        frame->bytes[i] = (uint8_t)dice(256);
    frame->credit.credit = dice(1 << 20);
    if (dice(40) == 0)
        return; /* random bytes only */
    switch (id) {
    case PSC_WIRE_EAGER:
        frame->eager.tag = some_tag();
        frame->eager.context = some_context();
        break;
    case PSC_WIRE_RTS:
        frame->rts.tag = some_tag();
        frame->rts.context = some_context();
        frame->rts.n_keys = (uint16_t)dice(4);
        frame->rts.flags = (uint16_t)dice(4);
        frame->rts.offset = some_length();
        frame->rts.send_id = some_id();
        frame->rts.len = some_length();
        break;
    case PSC_WIRE_RTR:
        frame->rtr.n_keys = dice(4);
        frame->rtr.send_id = some_id();
        frame->rtr.recv_id = some_id();
        frame->rtr.len = some_length();
        break;
    case PSC_WIRE_FRAG:
        frame->frag.ordered = dice(2);
        frame->frag.recv_id = some_id();
        frame->frag.offset = some_length();
        break;
    case PSC_WIRE_FIN:
        frame->fin.status = 1 - (int)dice(20);
        frame->fin.request_id = some_id();
        break;
    case PSC_WIRE_TAKEN:
        frame->taken.request_id = some_id();
        break;
    case PSC_WIRE_LANE_DOWN:
    case PSC_WIRE_LANE_UP:
        frame->lane.index = dice(LANES + 1);
        break;
    case PSC_WIRE_SEEN:
        frame->seen.number = dice(FRAMES);
        break;
    case PSC_WIRE_RESUME:
        frame->resume.turn = dice(LANES);
        frame->resume.first = dice(FRAMES);
        break;
    case PSC_WIRE_ADVERTISE:
        frame->expose.entry = dice(PSC_EXPOSED_MAX + 1);
        frame->expose.generation = dice(FRAMES);
        frame->expose.match = psc_match_bits(CONTEXT, (int32_t)dice(3));
        frame->expose.ignore = dice(2) ? PSC_TAG_MASK : 0;
        frame->expose.len = some_length();
        break;
    case PSC_WIRE_CONCEAL:
    case PSC_WIRE_CONCEALED:
        frame->conceal.entry = dice(POSTED);
        frame->conceal.generation = dice(POSTED);
        break;
    case PSC_WIRE_PLACED:
        frame->placed.eager.tag = some_tag();
        frame->placed.eager.context = some_context();
        frame->placed.entry = dice(POSTED);
        frame->placed.generation = dice(POSTED);
        frame->placed.len = some_length();
        break;
    case PSC_WIRE_RMA_PUT:
    case PSC_WIRE_RMA_GET:
        frame->rma.reserved = dice(2);
        frame->rma.request_id = some_id();
        frame->rma.region = dice(3);
        frame->rma.offset = some_length();
        frame->rma.len = some_length();
        break;
    default:
        break;
    }
}

bool hostile_speak_by(psc_lane_t *lane, unsigned id, const void *header,
                      uint8_t header_len, const void *payload, size_t len)
{
    psc_iov_t iov = {(void *)payload, len};
    psc_status_t status = PSC_ERR_CLOSED;

    psc_lock_acquire(&lane->worker->lock);
    if (!lane->closing)
        status = lane->slot->ops->am_bcopy(lane->ep, (uint8_t)id, header,
                                           header_len, &iov, 1);
    psc_lock_release(&lane->worker->lock);
    return status != PSC_ERR_NO_RESOURCE;
}

bool hostile_speak(psc_conn_t *conn, unsigned id, const void *header,
                   uint8_t header_len, const void *payload, size_t len)
{
    return hostile_speak_by(conn->lanes[dice(conn->n_lanes)], id, header,
                            header_len, payload, len);
}

static size_t some_ids(uint8_t *payload)
{
    size_t n = dice(20);

    for (size_t i = 0; i < n; i++) {
        uint64_t id = some_id();

        memcpy(payload + i * sizeof id, &id, sizeof id);
    }
    return n * sizeof(uint64_t);
}

static void speak_nonsense(psc_conn_t *conn)
{
    static uint8_t payload[60000];
    unsigned id = dice(PSC_WIRE_COUNT + 1);
    uint8_t header_len = id < PSC_WIRE_COUNT ? header_lens[id] : 8;
    size_t len = dice(3) ? dice(dice(2) ? 500 : sizeof payload) : 0;
    frame_t frame;

    for (size_t i = 0; i < len; i += 97)
        payload[i] = (uint8_t)dice(256);
    if (id == PSC_WIRE_FIN && dice(4))
        len = some_ids(payload);
    frame_fill(&frame, (psc_wire_id_t)id);
    if (dice(200) == 0)
        header_len = (uint8_t)dice(PSC_AM_HEADER_MAX);
    hostile_speak(conn, id, &frame, header_len, payload, len);
}

/* ---- operations that side a has pending meanwhile ---- */

typedef struct work {
    char buffers[POSTED][LARGE];
    char theirs[LARGE]; /* buffer of side b */
    psc_request_t *requests[POSTED];
    psc_result_t results[POSTED];
    psc_region_t *region;
    uint8_t packed[1024];
    size_t packed_len;
} work_t;

static void work_begin(work_t *work, pair_t *pair, psc_conn_t *conn)
{
    side_t sender = {.worker = pair->a.worker, .conn = conn};

    for (int i = 0; i < POSTED; i++) {
        size_t len = i % 2 ? LARGE : 100;

        work->requests[i] =
            i % 3 ? post_recv(&pair->a, i % 4 ? conn : NULL, work->buffers[i],
                              len, i % 3, &work->results[i])
                  : post_send(&sender, work->buffers[i], len, 1);
    }
    check(api->region_create(pair->a.worker, work->buffers[0], LARGE,
                             &work->region) == PSC_OK);
    work->packed_len = sizeof work->packed;
    check(api->region_pack(work->region, work->packed, &work->packed_len) ==
          PSC_OK);
}

static void work_end(work_t *work)
{
    for (int i = 0; i < POSTED; i++) {
        if (!work->requests[i])
            continue;
        /* receives from any source stay posted */
        api->cancel(work->requests[i]);
        api->request_free(work->requests[i]);
    }
    api->region_destroy(work->region);
}

/* Fail all connections: in one thread no side can wait for the other's
 * CLOSE_ACK. */
static void part(pair_t *pair, psc_conn_t *here, psc_conn_t *there)
{
    psc_conn_t *const ends[] = {pair->a.conn, pair->b.conn, here, there};

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        if (ends[i])
            psc_conn_fail(ends[i], PSC_ERR_PEER_LOST);
    }
    settle(pair);
    pair_close(pair);
}

void hostile_part(pair_t *pair)
{
    part(pair, NULL, NULL);
}

static void ignore(void *arg, const psc_message_t *message)
{
    (void)arg;
    (void)message;
}

static void still_works(pair_t *pair, psc_conn_t *here, psc_conn_t *there)
{
    char out[3000], in[3000] = {0};
    side_t sender = {.worker = pair->b.worker, .conn = there};
    psc_result_t result;
    psc_request_t *recv, *send;

    fill(out, sizeof out, 3);
    recv = post_recv(&pair->a, here, in, sizeof in, 9999, &result);
    send = post_send(&sender, out, sizeof out, 9999);
    check(finish(pair, recv).status == PSC_OK && filled(in, sizeof in, 3));
    if (send)
        finish(pair, send);
}

/* Send and receive as a correct peer does, so that there are operations to
 * disturb. */
static void speak_sense(work_t *work, pair_t *pair, psc_conn_t *conn)
{
    psc_iov_t iov = {work->theirs, dice(2) ? dice(LARGE) : dice(500)};
    psc_send_args_t send = {
        .context = CONTEXT, .tag = (int32_t)dice(3), .iov = &iov, .n_iov = 1};
    psc_recv_args_t recv = {.source = conn,
                            .context = CONTEXT,
                            .tag = (int32_t)dice(3),
                            .iov = &iov,
                            .n_iov = 1};
    psc_request_t *request = NULL;
    psc_result_t result;

    switch (dice(5)) {
    case 0:
        api->recv(pair->b.worker, &recv, &result, &request);
        break;
    case 1:
        api->put(conn, &send, work->packed, work->packed_len, dice(LARGE),
                 &request);
        break;
    case 2:
        api->get(conn, &send, work->packed, work->packed_len, dice(LARGE),
                 &request);
        break;
    case 3:
        api->am_send(conn, dice(2), "header", 6, &send, &request);
        break;
    default:
        api->send(conn, &send, &request);
    }
    if (request)
        api->request_free(request); /* the request completes by itself */
}

/* Abuse one connection until it is broken, or for FRAMES frames. */
static void torment(work_t *work, pair_t *pair)
{
    psc_conn_t *here, *there;

    pair_join_by(pair, 1 + dice(LANES), &here, &there);
    work_begin(work, pair, here);
    for (int i = 0; i < FRAMES && !psc_conn_ended(here); i++) {
        if (dice(3))
            speak_sense(work, pair, there);
        else
            speak_nonsense(there);
        pair_progress(pair);
    }
    psc_conn_fail(here, PSC_ERR_PEER_LOST);
    psc_conn_fail(there, PSC_ERR_PEER_LOST);
    pair_progress(pair);
    work_end(work);
}

CASE(hostile_frames)
{
    work_t *work = calloc(1, sizeof *work);

    for (unsigned round = 0; round < ROUNDS; round++) {
        pair_t pair;

        dice_state = round;
        options.scheme = (psc_rndv_scheme_t)(round % 4);
        options.tuple_min = options.eager_max + 1;
        options.tuple_am = true;
        pair_open(&pair);
        psc_worker_log_to(pair.a.worker, -1, 0);
        psc_worker_log_to(pair.b.worker, -1, 0);
        api->am_handler(pair.a.worker, 1, ignore, NULL);
        for (int i = 0; i < VICTIMS; i++)
            torment(work, &pair);
        still_works(&pair, pair.a.conn, pair.b.conn);
        hostile_part(&pair);
    }
    free(work);
}

/* ---- limits ---- */

/* Endless eager messages: a peer without credit loses its connection. */
CASE(hostile_flood)
{
    psc_wire_eager_t wire = {.tag = 1, .context = CONTEXT};
    static char payload[1000];
    pair_t pair;

    options.unexpected_max = 1 << 20;
    pair_open(&pair);
    psc_worker_log_to(pair.a.worker, -1, 0);
    for (int i = 0; i < 20000; i++) {
        hostile_speak(pair.b.conn, PSC_WIRE_EAGER, &wire, sizeof wire, payload,
                      sizeof payload);
        pair_progress(&pair);
    }
    check(psc_conn_state(pair.a.conn) == PSC_CONN_FAILED);
    check(count(pair.a.worker, PSC_COUNTER_unexpected) < 3000);
    hostile_part(&pair);
}

/* Returns true if the peer cannot be flooded any further, because side b does
 * not receive: the ring to it is full of answers, or its fabric refuses to
 * send. */
static bool answers_are_stuck(pair_t *pair, unsigned unsaid)
{
    return count(pair->a.worker, PSC_COUNTER_back_pressure) > 1000 ||
           unsaid > 1000;
}

/* A flood of announcements, of messages and of active messages. */
CASE(hostile_announcements)
{
    static const uint32_t contexts[] = {CONTEXT, PSC_CONTEXT_AM};

    for (int i = 0; i < 2; i++) {
        psc_wire_rts_t wire = {
            .tag = 1, .context = contexts[i], .len = 1 << 20};
        unsigned unsaid = 0;
        pair_t pair;

        pair_open(&pair);
        psc_worker_log_to(pair.a.worker, -1, 0);
        psc_worker_log_to(pair.b.worker, -1, 0);
        /* as if the peer had announced almost as many as it may before */
        pair.a.conn->rts_in = PSC_RTS_LIMIT - 20000;
        for (unsigned n = 0; n < 40000 && !answers_are_stuck(&pair, unsaid);
             n++) {
            wire.send_id = n;
            unsaid += !hostile_speak(pair.b.conn, PSC_WIRE_RTS, &wire,
                                     sizeof wire, NULL, 0);
            api->progress(pair.a.worker, 0);
        }
        check(psc_conn_state(pair.a.conn) == PSC_CONN_FAILED ||
              answers_are_stuck(&pair, unsaid));
        hostile_part(&pair);
    }
}

static void told(psc_comp_t *comp, psc_status_t status)
{
    (void)comp, (void)status;
}

/* Side b puts a message for which no receive is posted. */
static uint32_t put_missed(pair_t *pair, const char *bytes, size_t len)
{
    static psc_comp_t comp = {told};
    psc_lane_t *lane = pair->b.conn->lanes[0];
    uint64_t bits = psc_tag_bits(CONTEXT, 0) | PSC_TAG_MARK;
    psc_status_t status;
    uint32_t number;

    psc_lock_acquire(&pair->b.worker->lock);
    status =
        lane->slot->ops->tag_put(lane->ep, bits, bytes, len, &number, &comp);
    psc_lock_release(&pair->b.worker->lock);
    check(status == PSC_INPROGRESS);
    until(pair, pair->a.conn->lanes[0]->promised);
    return number;
}

/* Only if the fabric matches: a late RTS that describes another message than
 * its placeholder, with and without a waiting receive. */
CASE(hostile_promises)
{
    static char out[50000], buffer[sizeof out];

    for (int i = 0; i < 4; i++) {
        psc_wire_rts_t wire = {
            .context = CONTEXT, .flags = PSC_RTS_LATE, .len = sizeof out};
        psc_request_t *recv = NULL;
        psc_result_t result;
        pair_t pair;

        pair_open(&pair);
        psc_worker_log_to(pair.a.worker, -1, 0);
        if (pair.a.conn->matches) {
            wire.number = put_missed(&pair, out, sizeof out);
            if (i < 2)
                recv = post_recv(&pair.a, pair.a.conn, buffer, sizeof buffer, 0,
                                 &result);
        }
        wire.number += i % 2;
        wire.len += i % 2 == 0;
        hostile_speak(pair.b.conn, PSC_WIRE_RTS, &wire, sizeof wire, NULL, 0);
        until(&pair, psc_conn_state(pair.a.conn) == PSC_CONN_FAILED);
        if (recv)
            check(finish(&pair, recv).status < 0);
        hostile_part(&pair);
    }
}

/* Side b sends CLOSE and then more frames: they are ignored, and a's receives
 * from any source stay posted for other peers. */
CASE(frames_after_the_end)
{
    psc_wire_credit_t farewell = {.credit = 1 << 20};
    psc_wire_rts_t rts = {.tag = 5, .context = CONTEXT, .len = 100};
    psc_wire_eager_t eager = {.tag = 5, .context = CONTEXT};
    char buffer[3000], out[3000];
    psc_conn_t *here, *there;
    psc_request_t *anybody;
    psc_result_t result;
    side_t sender;
    pair_t pair;

    pair_open(&pair);
    pair_join(&pair, &here, &there);
    anybody = post_recv(&pair.a, NULL, buffer, sizeof buffer, 5, &result);
    hostile_speak(pair.b.conn, PSC_WIRE_CLOSE, &farewell, sizeof farewell, NULL,
                  0);
    hostile_speak(pair.b.conn, PSC_WIRE_RTS, &rts, sizeof rts, NULL, 0);
    hostile_speak(pair.b.conn, PSC_WIRE_EAGER, &eager, sizeof eager, "late", 4);
    until(&pair, psc_conn_state(pair.a.conn) == PSC_CONN_CLOSED);
    settle(&pair);
    fill(out, sizeof out, 8);
    sender = (side_t){.worker = pair.b.worker, .conn = there};
    psc_request_t *send = post_send(&sender, out, sizeof out, 5);
    result = finish(&pair, anybody);
    check(result.status == PSC_OK && result.source == api->conn_id(here));
    check(filled(buffer, sizeof buffer, 8));
    if (send)
        finish(&pair, send);
    part(&pair, here, there);
}

/* Side b answers, over another connection, the announcement of a message: the
 * message belongs to its own connection, which goes on. */
CASE(answer_over_another_connection)
{
    static char out[LARGE], in[LARGE];
    psc_wire_rtr_t wire = {.len = LARGE};
    psc_conn_t *here, *there;
    psc_request_t *send, *recv;
    psc_result_t result;
    pair_t pair;

    pair_open(&pair);
    pair_join(&pair, &here, &there);
    psc_worker_log_to(pair.a.worker, -1, 0);
    psc_worker_log_to(pair.b.worker, -1, 0);
    fill(out, LARGE, 4);
    send = post_send(&pair.a, out, LARGE, 5);
    settle(&pair);
    wire.send_id = psc_req_id(psc_req_of(send));
    hostile_speak(there, PSC_WIRE_RTR, &wire, sizeof wire, NULL, 0);
    until(&pair, psc_conn_state(here) == PSC_CONN_FAILED);
    recv = post_recv(&pair.b, pair.b.conn, in, LARGE, 5, &result);
    check((recv ? finish(&pair, recv) : result).status == PSC_OK);
    check(filled(in, LARGE, 4));
    check(finish(&pair, send).status == PSC_OK);
    part(&pair, here, there);
}
