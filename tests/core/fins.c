/* FINs of gets that complete at the same time. Side a sends, side b gets. A
 * wrapper around the transport delays the completion of b's gets, and refuses
 * b's messages, as the test case demands. */
#include "harness.h"
#include "hostile.h"
#include "pscompy/core/conn.h"
#include "pscompy/core/request.h"

enum { MESSAGES = 40, LEN = 20000, TOGETHER = 16 };

/* ---- the wrapper ---- */

typedef struct late_get {
    psc_comp_t comp; /* passed to the wrapped transport */
    psc_comp_t *above;
    psc_status_t status;
    bool ended;
} late_get_t;

static struct {
    psc_transport_ops_t ops;
    const psc_transport_ops_t *below;
    late_get_t gets[MESSAGES];
    unsigned n, told; /* gets, and how many of them were completed */
    unsigned open;    /* how many may be completed */
    bool full;
} late;

static void late_ended(psc_comp_t *comp, psc_status_t status)
{
    late_get_t *get = psc_container_of(comp, late_get_t, comp);

    get->status = status;
    get->ended = true;
}

static psc_status_t late_get(psc_ep_t *ep, void *buffer, size_t len,
                             psc_mem_t *mem, psc_rkey_t *rkey, uint64_t offset,
                             psc_comp_t *comp)
{
    late_get_t *get = &late.gets[late.n];
    psc_status_t status;

    check(late.n < MESSAGES);
    *get = (late_get_t){.comp.func = late_ended, .above = comp};
    status = late.below->get(ep, buffer, len, mem, rkey, offset, &get->comp);
    if (status < 0)
        return status;
    get->ended = status == PSC_OK;
    late.n++;
    return PSC_INPROGRESS;
}

static unsigned late_progress(psc_iface_t *iface)
{
    unsigned n = late.below->progress(iface);

    for (; late.told < late.open && late.gets[late.told].ended; n++) {
        late_get_t *get = &late.gets[late.told++];

        get->above->func(get->above, get->status);
    }
    return n;
}

static psc_status_t late_am_short(psc_ep_t *ep, uint8_t id, const void *header,
                                  uint8_t header_len, const void *payload,
                                  size_t len)
{
    return late.full
               ? PSC_ERR_NO_RESOURCE
               : late.below->am_short(ep, id, header, header_len, payload, len);
}

static psc_status_t late_am_bcopy(psc_ep_t *ep, uint8_t id, const void *header,
                                  uint8_t header_len, const psc_iov_t *iov,
                                  size_t n_iov)
{
    return late.full
               ? PSC_ERR_NO_RESOURCE
               : late.below->am_bcopy(ep, id, header, header_len, iov, n_iov);
}

static void late_wrap(psc_conn_t *conn)
{
    psc_iface_slot_t *slot = conn->lanes[0]->slot;

    memset(&late, 0, sizeof late);
    late.below = slot->ops;
    late.ops = *slot->ops;
    late.ops.get = late_get;
    late.ops.progress = late_progress;
    late.ops.am_bcopy = late_am_bcopy;
    if (late.ops.am_short)
        late.ops.am_short = late_am_short;
    slot->ops = conn->out.ops = &late.ops;
}

static bool late_all_ended(void)
{
    for (unsigned i = 0; i < late.n; i++) {
        if (!late.gets[i].ended)
            return false;
    }
    return true;
}

/* ---- messages ---- */

typedef struct stream {
    pair_t pair;
    unsigned n;
    psc_request_t *sends[MESSAGES], *recvs[MESSAGES];
    char out[LEN];
    char in[MESSAGES][LEN];
} stream_t;

/* Send n messages and wait until each was got, with all completions delayed.
 * Returns NULL if this transport cannot get; then there is nothing to test. */
static stream_t *stream_open(unsigned n)
{
    stream_t *stream = calloc(1, sizeof *stream);
    psc_lane_t *lane;
    psc_result_t result;

    check(stream);
    options.scheme = PSC_RNDV_GET;
    pair_open(&stream->pair);
    lane = stream->pair.b.conn->lanes[0];
    if (!(lane->slot->attr.caps & PSC_CAP_GET)) {
        printf("no get\n");
        pair_close(&stream->pair);
        free(stream);
        return NULL;
    }
    late_wrap(stream->pair.b.conn);
    stream->n = n;
    fill(stream->out, LEN, 5);
    for (unsigned i = 0; i < n; i++) {
        stream->recvs[i] = post_recv(&stream->pair.b, stream->pair.b.conn,
                                     stream->in[i], LEN, 1, &result);
        stream->sends[i] = post_send(&stream->pair.a, stream->out, LEN, 1);
    }
    until(&stream->pair, late.n == n && late_all_ended());
    return stream;
}

static uint64_t stream_fins(const stream_t *stream)
{
    return count(stream->pair.b.worker, PSC_COUNTER_rndv_fin);
}

static void stream_finish(stream_t *stream)
{
    for (unsigned i = 0; i < stream->n; i++) {
        check(finish(&stream->pair, stream->recvs[i]).status == PSC_OK);
        check(finish(&stream->pair, stream->sends[i]).status == PSC_OK);
        check(filled(stream->in[i], LEN, 5));
    }
}

static void stream_close(stream_t *stream)
{
    pair_close(&stream->pair);
    free(stream);
}

/* ---- cases ---- */

/* Gets that complete in one pass are confirmed by as few FIN messages as
 * possible. */
CASE(fins_together)
{
    stream_t *stream = stream_open(MESSAGES);

    if (!stream)
        return;
    check(stream_fins(stream) == 0);
    late.open = MESSAGES;
    stream_finish(stream);
    check(stream_fins(stream) == (MESSAGES + TOGETHER - 1) / TOGETHER);
    stream_close(stream);
}

/* One of two gets has completed: its FIN is sent in the same call of b, which
 * then makes no further call. */
CASE(fin_while_another_moves)
{
    stream_t *stream = stream_open(2);

    if (!stream)
        return;
    late.open = 1;
    api->progress(stream->pair.b.worker, 0);
    check(done(stream->recvs[0]) && !done(stream->recvs[1]));
    check(stream_fins(stream) == 1);
    int64_t end = psc_clock_now() + PATIENCE_NS;
    while (!done(stream->sends[0])) {
        check(psc_clock_now() < end);
        api->progress(stream->pair.a.worker, 0);
    }
    check(!done(stream->sends[1]));
    late.open = 2;
    stream_finish(stream);
    stream_close(stream);
}

/* Three gets have completed, and the fabric accepts no FIN. */
static stream_t *stream_stuck(void)
{
    stream_t *stream = stream_open(3);

    if (!stream)
        return NULL;
    late.open = 3;
    late.full = true;
    settle(&stream->pair);
    return stream;
}

static bool stream_ended(const stream_t *stream)
{
    return psc_conn_ended(stream->pair.a.conn) &&
           psc_conn_ended(stream->pair.b.conn);
}

/* The receives are not done either: a thread that waits for one continues to
 * call progress until its FIN is sent. */
CASE(fins_refused)
{
    stream_t *stream = stream_stuck();

    if (!stream)
        return;
    for (unsigned i = 0; i < stream->n; i++)
        check(!done(stream->recvs[i]) && !done(stream->sends[i]));
    late.full = false;
    stream_finish(stream);
    check(stream_fins(stream) == 1);
    stream_close(stream);
}

/* b closes meanwhile: its FINs are sent before its CLOSE. */
CASE(fins_and_close)
{
    stream_t *stream = stream_stuck();

    if (!stream)
        return;
    psc_conn_close(stream->pair.b.conn);
    settle(&stream->pair);
    late.full = false;
    stream_finish(stream);
    until(&stream->pair, stream_ended(stream));
    stream_close(stream);
}

static void end_at(psc_conn_t *conn, stream_t *stream)
{
    psc_conn_fail(conn, PSC_ERR_PEER_LOST);
    until(&stream->pair, stream_ended(stream));
    late.full = false;
    for (unsigned i = 0; i < stream->n; i++) {
        check(finish(&stream->pair, stream->recvs[i]).status < 0);
        check(finish(&stream->pair, stream->sends[i]).status < 0);
    }
    stream_close(stream);
}

/* The connection is lost meanwhile, on either side: all requests end. */
CASE(fins_and_end)
{
    stream_t *stream = stream_stuck();

    if (!stream)
        return;
    end_at(stream->pair.a.conn, stream);
    stream = stream_stuck();
    end_at(stream->pair.b.conn, stream);
}

/* ---- FINs that b sends by hand ---- */

enum { SENDS = TOGETHER + 2 };

typedef struct tale {
    bool is_true;
    int32_t status;
    unsigned n;   /* number of ids after the first */
    unsigned cut; /* bytes missing at the end */
    /* index of the id that is unknown, or repeated; 0: none */
    unsigned unknown, twice;
} tale_t;

static uint64_t id_of(const psc_request_t *request)
{
    return psc_req_id(psc_container_of(request, psc_req_t, head));
}

static void tell(const tale_t *tale, side_t *b, psc_request_t *const *sends)
{
    psc_wire_fin_t wire = {.credit = 1 << 20,
                           .status = tale->status,
                           .request_id = id_of(sends[0])};
    uint64_t ids[SENDS] = {0};

    for (unsigned i = 0; i < tale->n; i++)
        ids[i] = id_of(sends[i + 1]);
    if (tale->twice)
        ids[tale->twice - 1] = wire.request_id;
    if (tale->unknown)
        ids[tale->unknown - 1] = UINT64_MAX;
    check(hostile_speak(b->conn, PSC_WIRE_FIN, &wire, sizeof wire, ids,
                        tale->n * sizeof *ids - tale->cut));
}

/* Receive FINs for a's pending sends. Correct ones complete the sends, others
 * end the connection. */
static void hear(const tale_t *tale)
{
    static char out[LEN];
    psc_request_t *sends[SENDS];
    pair_t pair;

    pair_open(&pair);
    psc_worker_log_to(pair.a.worker, -1, 0);
    psc_worker_log_to(pair.b.worker, -1, 0);
    for (int i = 0; i < SENDS; i++)
        sends[i] = post_send(&pair.a, out, LEN, 1);
    settle(&pair);
    tell(tale, &pair.b, sends);
    if (tale->is_true)
        until(&pair, done(sends[tale->n]));
    else
        until(&pair, psc_conn_state(pair.a.conn) == PSC_CONN_FAILED);
    for (unsigned i = 0; i < SENDS; i++) {
        check(done(sends[i]) == (!tale->is_true || i <= tale->n));
        api->request_free(sends[i]);
    }
    hostile_part(&pair);
}

CASE(hostile_fins)
{
    static const tale_t tales[] = {
        {.is_true = true, .n = TOGETHER - 1},
        {.n = TOGETHER},
        {.n = TOGETHER + 1, .cut = 4},
        {.status = 1, .n = 1},
        {.n = 1, .cut = 1},
        {.n = 1, .unknown = 1},
        {.n = 2, .unknown = 2},
        {.n = 2, .twice = 2},
    };

    for (size_t i = 0; i < sizeof tales / sizeof *tales; i++)
        hear(&tales[i]);
}
