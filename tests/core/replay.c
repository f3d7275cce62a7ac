/* The lane that carries the ordered messages is lost, at moments that random
 * numbers choose (PSCOMPY_TEST_SEEDS: how many). */
#include <unistd.h>

#include "harness.h"
#include "hostile.h"
#include "pscompy/core/conn.h"
#include "pscompy/proto/replay.h"
#include "pscompy/core/worker.h"

/* Twelve seeds have each scheme with all sets of lanes that are unlike. */
enum { MESSAGES = 200, LONGEST = 300000, SEEDS = 12 };

static unsigned seeds_wanted(void)
{
    const char *wanted = getenv("PSCOMPY_TEST_SEEDS");

    return wanted ? (unsigned)atoi(wanted) : SEEDS;
}

static unsigned dice_state;

static unsigned dice(unsigned sides)
{
    dice_state = dice_state * 1664525u + 1013904223u;
    return (dice_state >> 8) % sides;
}

/* Messages with one tag from one side to the other. */
typedef struct stream {
    side_t from, to;
    size_t lens[MESSAGES];
    char *out[MESSAGES];
    psc_request_t *sends[MESSAGES];
    unsigned sent, received;
} stream_t;

typedef struct streams {
    pair_t pair;
    side_t a, b; /* of the connection over several lanes */
    stream_t there, back;
} streams_t;

static void stream_open(stream_t *stream, const side_t *from, const side_t *to)
{
    static const size_t lens[] = {0, 8, 8, 8, 900, 5000, 30000, LONGEST};

    *stream = (stream_t){.from = *from, .to = *to};
    for (unsigned i = 0; i < MESSAGES; i++) {
        stream->lens[i] = lens[dice(sizeof lens / sizeof *lens)];
        stream->out[i] = malloc(stream->lens[i] + 1);
        fill(stream->out[i], stream->lens[i], i);
    }
}

/* Returns false if lanes of this transport may not fail. */
static bool streams_open(streams_t *streams, uint32_t n_lanes, unsigned seed)
{
    static const psc_rndv_scheme_t schemes[] = {PSC_RNDV_AM, PSC_RNDV_GET,
                                                PSC_RNDV_PUT};

    dice_state = seed;
    options = (options_t){.eager_max = 32768,
                          .scheme = schemes[seed % 3],
                          .unexpected_max = 1 << 20,
                          .rts_max = 64,
                          .unlike = seed % 4};
    pair_open(&streams->pair);
    pair_join_by(&streams->pair, n_lanes, &streams->a.conn, &streams->b.conn);
    streams->a.worker = streams->pair.a.worker;
    streams->b.worker = streams->pair.b.worker;
    stream_open(&streams->there, &streams->a, &streams->b);
    stream_open(&streams->back, &streams->b, &streams->a);
    return streams->a.conn->replay;
}

static void stream_send(stream_t *stream)
{
    unsigned i = stream->sent;

    if (i == MESSAGES)
        return;
    stream->sends[i] =
        post_send(&stream->from, stream->out[i], stream->lens[i], 1);
    stream->sent++;
}

/* Receive the next message, which must be the one that was sent next. */
static void stream_receive(pair_t *pair, stream_t *stream)
{
    static char in[LONGEST];
    unsigned i = stream->received++;
    psc_result_t result;
    psc_request_t *recv =
        post_recv(&stream->to, stream->to.conn, in, sizeof in, 1, &result);

    if (recv)
        result = finish(pair, recv);
    check(result.status == PSC_OK && result.nbytes == stream->lens[i]);
    check(filled(in, stream->lens[i], i));
}

static void stream_close(pair_t *pair, stream_t *stream)
{
    while (stream->sent < MESSAGES)
        stream_send(stream);
    while (stream->received < MESSAGES)
        stream_receive(pair, stream);
    for (unsigned i = 0; i < MESSAGES; i++) {
        if (stream->sends[i])
            check(finish(pair, stream->sends[i]).status == PSC_OK);
        free(stream->out[i]);
    }
}

/* The connection may have ended, and no message is received any more. */
static void stream_drop(stream_t *stream)
{
    for (unsigned i = 0; i < MESSAGES; i++) {
        if (stream->sends[i])
            api->request_free(stream->sends[i]);
        free(stream->out[i]);
    }
}

static void streams_close(streams_t *streams)
{
    stream_close(&streams->pair, &streams->there);
    stream_close(&streams->pair, &streams->back);
    check(psc_conn_state(streams->a.conn) == PSC_CONN_UP);
    check(psc_conn_state(streams->b.conn) == PSC_CONN_UP);
    pair_close(&streams->pair);
}

/* One random step of the two programs. */
static void streams_step(streams_t *streams)
{
    stream_t *stream = dice(2) ? &streams->there : &streams->back;

    switch (dice(4)) {
    case 0:
    case 1:
        stream_send(stream);
        break;
    case 2:
        if (stream->received < stream->sent)
            stream_receive(&streams->pair, stream);
        break;
    default:
        api->progress(dice(2) ? streams->a.worker : streams->b.worker, 0);
    }
}

static void lane_joins(streams_t *streams, uint32_t index)
{
    psc_lane_t *a, *b;

    until(&streams->pair,
          psc_conn_join_begin(streams->a.conn, index) == PSC_OK);
    until(&streams->pair,
          psc_conn_join_begin(streams->b.conn, index) == PSC_OK);
    pair_lanes(&streams->pair, &a, &b);
    check(psc_conn_join(streams->a.conn, index, a) == PSC_OK);
    check(psc_conn_join(streams->b.conn, index, b) == PSC_OK);
    until(&streams->pair,
          !streams->a.conn->lost.joining && !streams->b.conn->lost.joining);
}

/* Counts the messages that were sent again. */
static bool main_lane_fails(unsigned seed, uint64_t *again)
{
    streams_t streams;
    bool possible = streams_open(&streams, 2, seed);
    unsigned steps = dice(200);

    for (unsigned i = 0; possible && i < steps; i++)
        streams_step(&streams);
    if (possible)
        lane_fail((dice(2) ? streams.a.conn : streams.b.conn)->lanes[0]);
    settle(&streams.pair);
    *again += count(streams.a.worker, PSC_COUNTER_messages_again);
    streams_close(&streams);
    return possible;
}

CASE(the_main_lane_fails)
{
    uint64_t again = 0;
    unsigned seed = 0;

    while (seed < seeds_wanted() && main_lane_fails(seed, &again))
        seed++;
    check(seed == 0 || again > 0);
}

/* The lanes fail one after the other, and are joined again; the one that was
 * lane 0 carries the ordered messages in the end. */
CASE(each_lane_fails_in_turn)
{
    streams_t streams;

    if (!streams_open(&streams, 2, 1)) {
        streams_close(&streams);
        return;
    }
    for (uint32_t turn = 0; turn < 6; turn++) {
        for (int i = 0; i < 30; i++)
            streams_step(&streams);
        check(streams.a.conn->main->index == turn % 2);
        lane_fail(
            (turn % 4 < 2 ? streams.a.conn : streams.b.conn)->lanes[turn % 2]);
        lane_joins(&streams, turn % 2);
        check(streams.a.conn->main->index == (turn + 1) % 2);
        check(streams.b.conn->main == streams.b.conn->lanes[(turn + 1) % 2]);
    }
    check(count(streams.a.worker, PSC_COUNTER_rails_lost) >= 6);
    streams_close(&streams);
}

/* b has acknowledged messages over the lane that is lost before a reads it: b
 * acknowledges them over the next lane, so that a does not keep them. */
CASE(acknowledged_again_over_another_lane)
{
    enum { N = 6, ROOM = 32768 }; /* for an eager message */
    static const char out[30000]; /* N times: more than PSC_REPLAY_ACK */
    static char in[sizeof out];
    psc_result_t result;
    uint64_t again;
    streams_t streams;

    if (!streams_open(&streams, 2, 0) || streams.a.worker == streams.b.worker ||
        streams.a.conn->main->slot->attr.max_bcopy < ROOM) {
        streams_close(&streams);
        return;
    }
    settle(&streams.pair);
    for (int i = 0; i < N; i++)
        check(!post_send(&streams.a, out, sizeof out, 9));
    for (int i = 0; i < N; i++) {
        psc_request_t *recv =
            post_recv(&streams.b, streams.b.conn, in, sizeof in, 9, &result);

        while (recv && !done(recv))
            api->progress(streams.b.worker, 0); /* a reads nothing */
        if (recv)
            api->request_free(recv);
    }
    lane_fail(streams.a.conn->lanes[0]);
    lane_joins(&streams, 0);
    settle(&streams.pair);
    again = count(streams.a.worker, PSC_COUNTER_messages_again);
    check(again >= N);
    lane_fail(streams.a.conn->lanes[1]);
    settle(&streams.pair);
    check(count(streams.a.worker, PSC_COUNTER_messages_again) < again + N);
    streams_close(&streams);
}

/* Two of three lanes fail, each on a random side, perhaps before the other side
 * has heard of the first. */
static bool two_lanes_fail(unsigned seed)
{
    streams_t streams;
    bool possible = streams_open(&streams, 3, seed);
    unsigned steps = dice(150), between = dice(2) ? dice(10) : 0;
    uint32_t first = dice(3), second = (first + 1 + dice(2)) % 3;

    for (unsigned i = 0; possible && i < steps; i++)
        streams_step(&streams);
    if (possible) {
        lane_fail((dice(2) ? streams.a.conn : streams.b.conn)->lanes[first]);
        while (between-- > 0)
            streams_step(&streams);
        lane_fail((dice(2) ? streams.a.conn : streams.b.conn)->lanes[second]);
    }
    streams_close(&streams);
    return possible;
}

CASE(two_of_three_lanes_fail)
{
    unsigned seed = 0;

    while (seed < seeds_wanted() && two_lanes_fail(seed))
        seed++;
}

/* Without any lane the connection ends. */
CASE(all_lanes_fail)
{
    streams_t streams;

    if (streams_open(&streams, 2, 1)) {
        for (int i = 0; i < 50; i++)
            streams_step(&streams);
        lane_fail(streams.a.conn->lanes[0]);
        check(psc_conn_state(streams.a.conn) == PSC_CONN_UP);
        lane_fail(streams.a.conn->lanes[1]);
        check(psc_conn_state(streams.a.conn) == PSC_CONN_FAILED);
        until(&streams.pair, psc_conn_state(streams.b.conn) == PSC_CONN_FAILED);
    }
    stream_drop(&streams.there);
    stream_drop(&streams.back);
    pair_close(&streams.pair);
}

/* ---- puts and gets ---- */

static bool lane_fails_amid_rma(unsigned seed)
{
    enum { LEN = 3 << 20, MOMENTS = 32 };
    unsigned passes = seed * MOMENTS / seeds_wanted();
    bool is_put = seed % 2, origin = seed % 4 < 2;
    char *here = malloc(LEN), *there = malloc(LEN);
    psc_iov_t iov = {here, LEN};
    psc_send_args_t args = {.iov = &iov, .n_iov = 1};
    psc_request_t *request;
    psc_region_t *region;
    uint8_t key[1024];
    size_t key_len = sizeof key;
    streams_t streams;
    bool possible = streams_open(&streams, 2, seed);
    psc_counter_t direct = is_put ? PSC_COUNTER_rma_put : PSC_COUNTER_rma_get;
    bool keyed = streams.a.conn->lanes[0]->slot->attr.caps &
                 (is_put ? PSC_CAP_PUT_ENDS : PSC_CAP_GET);

    fill(is_put ? here : there, LEN, 5);
    memset(is_put ? there : here, 0, LEN);
    check(api->region_create(streams.b.worker, there, LEN, &region) == PSC_OK);
    check(api->region_pack(region, key, &key_len) == PSC_OK);
    check((is_put ? api->put : api->get)(streams.a.conn, &args, key, key_len, 0,
                                         &request) == PSC_INPROGRESS);
    for (unsigned i = 0; i < passes; i++)
        pair_progress(&streams.pair);
    if (possible)
        lane_fail((origin ? streams.a : streams.b).conn->lanes[0]);
    check(finish(&streams.pair, request).status == PSC_OK);
    check(filled(is_put ? there : here, LEN, 5));
    check(!possible || keyed == (streams.a.conn->counters->value[direct] == 1));
    api->region_destroy(region);
    streams_close(&streams);
    free(here);
    free(there);
    return possible;
}

CASE(the_main_lane_fails_amid_puts_and_gets)
{
    unsigned seed = 0;

    while (seed < seeds_wanted() && lane_fails_amid_rma(seed))
        seed++;
}

/* ---- closing ---- */

/* a sends, closes, and loses its main lane: b still gets everything. */
static bool lane_fails_while_closing(unsigned seed)
{
    streams_t streams;
    bool possible = streams_open(&streams, 2, seed);
    unsigned passes = dice(6);

    while (possible && streams.there.sent < MESSAGES)
        stream_send(&streams.there);
    if (possible) {
        psc_conn_close(streams.a.conn);
        while (streams.there.received < MESSAGES / 2)
            stream_receive(&streams.pair, &streams.there);
        for (unsigned i = 0; i < passes; i++)
            pair_progress(&streams.pair);
        lane_fail((seed % 2 ? streams.a : streams.b).conn->lanes[0]);
    }
    while (streams.there.received < streams.there.sent)
        stream_receive(&streams.pair, &streams.there);
    until(&streams.pair,
          !possible || (psc_conn_state(streams.a.conn) == PSC_CONN_CLOSED &&
                        psc_conn_state(streams.b.conn) == PSC_CONN_CLOSED));
    for (unsigned i = 0; i < streams.there.sent; i++) {
        if (streams.there.sends[i])
            check(streams.there.sends[i]->result.status == PSC_OK);
    }
    stream_drop(&streams.there);
    stream_drop(&streams.back);
    pair_close(&streams.pair);
    return possible;
}

CASE(the_main_lane_fails_while_closing)
{
    unsigned seed = 0;

    while (seed < seeds_wanted() && lane_fails_while_closing(seed))
        seed++;
}

/* b has received messages and CLOSE, but has no room for its CLOSE_ACK, nor for
 * SEEN if that is due, when its program drops the connection. */
static bool dropped_before_the_ack(unsigned messages)
{
    enum { ROOM = 32768 }; /* for an eager message */
    static const char out[30000];
    streams_t streams;
    bool possible = streams_open(&streams, 2, 0) &&
                    streams.a.worker != streams.b.worker &&
                    streams.b.conn->main->slot->attr.max_bcopy >= ROOM;
    psc_conn_t *conn = streams.b.conn;

    psc_worker_log_to(streams.a.worker, -1, 0);
    if (possible) {
        settle(&streams.pair);
        lane_fills(conn->lanes[0]);
        for (unsigned i = 0; i < messages; i++)
            check(!post_send(&streams.a, out, sizeof out, 1));
        psc_conn_close(streams.a.conn);
        while (psc_conn_state(conn) != PSC_CONN_CLOSED)
            api->progress(conn->worker, 0);
        check(conn->closing.ack_due);
        check(conn->lost.replay_due ==
              (messages * sizeof out >= PSC_REPLAY_ACK));
        /* a full lane does not keep threads awake */
        check(psc_worker_progress(conn->worker) == 0);
        psc_conn_destroy(conn);
        settle(&streams.pair);
    }
    stream_drop(&streams.there);
    stream_drop(&streams.back);
    pair_close(&streams.pair);
    return possible;
}

CASE(dropped_before_the_acknowledgement)
{
    if (dropped_before_the_ack(0))
        dropped_before_the_ack(6);
}

/* ---- bounds ---- */

/* The peer polls nothing: what is kept for it stays bounded. */
CASE(the_retransmit_queue_is_bounded)
{
    enum { N = 60000 };
    static psc_request_t *sends[N];
    static const char out[1000];
    char in[1000];
    psc_result_t result;
    streams_t streams;

    if (!streams_open(&streams, 2, 1)) {
        streams_close(&streams);
        return;
    }
    for (int i = 0; i < N; i++) {
        sends[i] = post_send(&streams.a, out, sizeof out, 9);
        api->progress(streams.a.worker, 0);
    }
    check(sends[N - 1]); /* the last ones wait */
    for (int i = 0; i < N; i++) {
        psc_request_t *recv =
            post_recv(&streams.b, streams.b.conn, in, sizeof in, 9, &result);

        check((recv ? finish(&streams.pair, recv) : result).status == PSC_OK);
        if (i == N / 2)
            lane_fail(streams.a.conn->lanes[0]);
    }
    for (int i = 0; i < N; i++) {
        if (sends[i])
            check(finish(&streams.pair, sends[i]).status == PSC_OK);
    }
    streams_close(&streams);
}

/* ---- a peer that lies ---- */

typedef struct lie {
    unsigned id;
    uint32_t lane;
    uint32_t number, more; /* after the credit */
    bool ends; /* the connection ends; else only the lane is lost */
} lie_t;

/* b lies after it has sent one message and got one. */
static bool lie_is_refused(const lie_t *lie)
{
    const psc_wire_resume_t wire = {.turn = lie->number, .first = lie->more};
    const uint8_t header_len = lie->id == PSC_WIRE_RESUME ? sizeof wire : 8;
    streams_t streams;
    bool possible = streams_open(&streams, 2, 1);
    psc_lane_t *lane = streams.b.conn->lanes[lie->lane];
    psc_conn_t *conn = streams.a.conn;

    psc_worker_log_to(streams.a.worker, -1, 0);
    psc_worker_log_to(streams.b.worker, -1, 0);
    stream_send(&streams.there);
    stream_send(&streams.back);
    stream_receive(&streams.pair, &streams.there);
    stream_receive(&streams.pair, &streams.back);
    if (possible) {
        check(psc_worker_enter(lane->worker, 0) == PSC_OK);
        check(lane->slot->ops->am_bcopy(lane->ep, (uint8_t)lie->id, &wire,
                                        header_len, NULL, 0) == PSC_OK);
        psc_worker_leave(lane->worker);
        until(&streams.pair, lie->ends ? psc_conn_state(conn) == PSC_CONN_FAILED
                                       : conn->lanes[lie->lane]->closing);
    }
    stream_drop(&streams.there);
    stream_drop(&streams.back);
    psc_conn_fail(streams.a.conn, PSC_ERR_PEER_LOST);
    psc_conn_fail(streams.b.conn, PSC_ERR_PEER_LOST);
    hostile_part(&streams.pair);
    return possible;
}

CASE(lies_about_numbers_are_refused)
{
    static const lie_t lies[] = {
        {PSC_WIRE_SEEN, 0, 1000, 0, true}, /* of messages never sent */
        {PSC_WIRE_SEEN, 0, UINT32_MAX, 0, true},
        {PSC_WIRE_SEEN, 1, 0, 0, true}, /* on another lane */
        {PSC_WIRE_RESUME, 1, 1, 100, true}, /* leaves messages out */
        {PSC_WIRE_RESUME, 1, 0, 1, false}, /* an old one */
        {PSC_WIRE_RESUME, 0, UINT32_MAX, 1, false},
        {PSC_WIRE_TAKEN, 1, 0, 0, true},
    };

    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        if (!lie_is_refused(&lies[i]))
            break;
    }
}
