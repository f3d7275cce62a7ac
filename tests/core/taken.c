/* Memory that is taken back while peers access it: no byte is written or read
 * afterwards. AddressSanitizer watches memory that a test case frees. */
#include "harness.h"
#include "pscompy/core/conn.h"
#include "pscompy/core/lane.h"
#include "pscompy/core/memory/memory.h"
#include "pscompy/core/request.h"

enum { PUT_LEN = 1 << 20, GET_LEN = 8 << 20, SMALL = 50000, MOMENTS = 10 };

/* ---- regions accessed by messages ---- */

typedef psc_status_t (*move_t)(psc_conn_t *conn, const psc_send_args_t *args,
                               const uint8_t *packed, size_t packed_len,
                               uint64_t offset, psc_request_t **request_p);

typedef struct remote {
    pair_t pair;
    move_t move;
    size_t len; /* a get must be longer than the socket buffers */
    char *memory, *local; /* side b's region, side a's buffer */
    psc_region_t *region;
    uint8_t packed[1024];
    size_t packed_len;
    psc_request_t *request;
} remote_t;

/* Make the lane unable to put or get. */
static void messages_only(psc_conn_t *conn)
{
    conn->lanes[0]->slot->attr.caps &= ~(PSC_CAP_PUT | PSC_CAP_GET);
}

static void remote_open(remote_t *remote, move_t move)
{
    size_t len = move == api->put ? PUT_LEN : GET_LEN;

    *remote = (remote_t){.move = move,
                         .len = len,
                         .memory = calloc(1, len),
                         .local = calloc(1, len),
                         .packed_len = sizeof remote->packed};
    pair_open(&remote->pair);
    messages_only(remote->pair.a.conn);
    messages_only(remote->pair.b.conn);
    check(api->region_create(remote->pair.b.worker, remote->memory, len,
                             &remote->region) == PSC_OK);
    check(api->region_pack(remote->region, remote->packed,
                           &remote->packed_len) == PSC_OK);
}

static void remote_begin(remote_t *remote)
{
    psc_iov_t iov = {remote->local, remote->len};
    psc_send_args_t args = {.iov = &iov, .n_iov = 1};

    check(remote->move(remote->pair.a.conn, &args, remote->packed,
                       remote->packed_len, 0,
                       &remote->request) == PSC_INPROGRESS);
}

/* Close the region during the access; then free its memory. */
static void remote_take_back(remote_t *remote)
{
    until(&remote->pair,
          psc_memory_deregister(remote->region) != PSC_INPROGRESS);
    free(remote->memory);
}

static psc_status_t remote_end(remote_t *remote)
{
    psc_status_t status = finish(&remote->pair, remote->request).status;

    /* the connection must still work */
    psc_request_t *send = post_send(&remote->pair.a, "more", 4, 1), *recv;
    psc_result_t result;
    char in[4];

    recv = post_recv(&remote->pair.b, remote->pair.b.conn, in, 4, 1, &result);
    if (recv)
        result = finish(&remote->pair, recv);
    check(result.status == PSC_OK && !memcmp(in, "more", 4));
    sent(&remote->pair, send);
    free(remote->local);
    pair_close(&remote->pair);
    return status;
}

/* Take the region back after this many passes. Returns the origin's status. */
static psc_status_t close_after(move_t move, unsigned passes)
{
    remote_t remote;

    remote_open(&remote, move);
    remote_begin(&remote);
    while (passes-- > 0)
        pair_progress(&remote.pair);
    remote_take_back(&remote);
    return remote_end(&remote);
}

static void close_at_any_time(move_t move)
{
    unsigned refused = 0;

    for (unsigned passes = 0; passes < MOMENTS; passes++) {
        psc_status_t status = close_after(move, passes);

        check(status == PSC_OK || status == PSC_ERR_REGION);
        refused += status == PSC_ERR_REGION;
    }
    printf("%u of %u were refused\n", refused, MOMENTS);
    check(refused > 0);
}

CASE(put_into_a_closed_region)
{
    close_at_any_time(api->put);
}

CASE(get_from_a_closed_region)
{
    close_at_any_time(api->get);
}

/* The origin's connection is lost while its access is refused. */
CASE(region_outlives_no_peer)
{
    for (unsigned passes = 0; passes < 8; passes++) {
        remote_t remote;

        remote_open(&remote, passes % 2 ? api->put : api->get);
        remote_begin(&remote);
        for (unsigned i = 0; i < passes; i++)
            pair_progress(&remote.pair);
        psc_memory_deregister(remote.region);
        psc_conn_fail(remote.pair.a.conn, PSC_ERR_PEER_LOST);
        until(&remote.pair,
              psc_conn_state(remote.pair.b.conn) == PSC_CONN_FAILED);
        finish(&remote.pair, remote.request);
        settle(&remote.pair);
        check(psc_access_count(remote.pair.b.worker) == 0);
        pair_close(&remote.pair);
        free(remote.memory);
        free(remote.local);
    }
}

/* ---- payloads that are arriving, as a transport sees them ---- */

typedef struct landing {
    psc_lane_t *lane;
    psc_dest_t dest;
} landing_t;

static landing_t landing_begin(psc_lane_t *lane, psc_wire_id_t id,
                               const void *header, uint8_t header_len,
                               size_t len)
{
    landing_t landing = {.lane = lane};

    psc_lock_acquire(&lane->worker->lock);
    psc_lane_upcalls.am_begin(lane->ep, (uint8_t)id, header, header_len, len,
                              &landing.dest);
    psc_lock_release(&lane->worker->lock);
    return landing;
}

/* Write as the transport would into the pieces that are left. Returns their
 * length. */
static size_t landing_write(landing_t *landing)
{
    size_t written = 0;

    for (size_t i = 0; i < landing->dest.n_iov; i++) {
        const psc_iov_t *piece = &landing->dest.iov[i];

        if (piece->len)
            memset(piece->base, 9, piece->len);
        written += piece->len;
    }
    return written;
}

static void landing_end(landing_t *landing)
{
    psc_lock_acquire(&landing->lane->worker->lock);
    if (!landing->lane->closing)
        psc_lane_upcalls.am_end(landing->lane->ep, landing->dest.cookie);
    psc_lock_release(&landing->lane->worker->lock);
}

static void hear_payload(psc_lane_t *lane, psc_wire_id_t id, const void *header,
                         uint8_t header_len, const void *payload, size_t len)
{
    psc_am_t am = {.id = (uint8_t)id,
                   .header = header,
                   .header_len = header_len,
                   .payload = payload,
                   .len = len};

    psc_lock_acquire(&lane->worker->lock);
    psc_lane_upcalls.am_recv(lane->ep, &am);
    psc_lock_release(&lane->worker->lock);
}

static void hear(psc_lane_t *lane, psc_wire_id_t id, const void *header,
                 uint8_t header_len)
{
    hear_payload(lane, id, header, header_len, NULL, 0);
}

static psc_req_t *req_of(psc_request_t *request)
{
    return psc_container_of(request, psc_req_t, head);
}

/* Side a waits for fragments of a message that side b never sends. */
typedef struct waiting {
    pair_t pair;
    psc_conn_t *a, *b;
    char *buffer;
    psc_request_t *recv, *send;
    char out[SMALL];
} waiting_t;

static void waiting_open(waiting_t *waiting, psc_rndv_scheme_t scheme)
{
    psc_result_t result;

    memset(waiting, 0, sizeof *waiting);
    waiting->buffer = calloc(1, SMALL);
    options.scheme = scheme;
    pair_open(&waiting->pair);
    psc_worker_log_to(waiting->pair.a.worker, -1, 0);
    psc_worker_log_to(waiting->pair.b.worker, -1, 0);
    pair_join_by(&waiting->pair, LANES, &waiting->a, &waiting->b);
    waiting->recv = post_recv(&waiting->pair.a, waiting->a, waiting->buffer,
                              SMALL, 1, &result);
}

/* Wait until the receive has matched an RTS and has answered it. */
static void waiting_answered(waiting_t *waiting)
{
    side_t b = {.worker = waiting->pair.b.worker, .conn = waiting->b};

    waiting->send = post_send(&b, waiting->out, SMALL, 1);
    check(waiting->send);
    until(&waiting->pair, req_of(waiting->recv)->stage == PSC_STAGE_AWAIT_DATA);
}

static void waiting_close(waiting_t *waiting)
{
    psc_conn_fail(waiting->a, PSC_ERR_PEER_LOST);
    psc_conn_fail(waiting->b, PSC_ERR_PEER_LOST);
    settle(&waiting->pair);
    finish(&waiting->pair, waiting->recv);
    if (waiting->send)
        finish(&waiting->pair, waiting->send);
    free(waiting->buffer);
    pair_close(&waiting->pair);
}

static landing_t waiting_landing(waiting_t *waiting, unsigned lane)
{
    psc_wire_frag_t wire = {.recv_id = psc_req_id(req_of(waiting->recv))};

    return landing_begin(waiting->a->lanes[lane], PSC_WIRE_FRAG, &wire,
                         sizeof wire, SMALL / 2);
}

CASE(landing_when_a_connection_fails)
{
    waiting_t waiting;
    landing_t landing;

    waiting_open(&waiting, PSC_RNDV_AM);
    waiting_answered(&waiting);
    landing = waiting_landing(&waiting, 1);
    check(landing_write(&landing) == SMALL / 2);
    psc_conn_fail(waiting.a, PSC_ERR_PEER_LOST);
    check(done(waiting.recv));
    check(landing_write(&landing) == 0);
    landing_end(&landing);
    waiting_close(&waiting);
}

/* b sends half of the message on lane 1 and, before that has arrived, so much
 * on lane 0 that the sum is the whole message, or more. */
CASE(landing_beside_fragments)
{
    for (int more = 0; more < 2; more++) {
        waiting_t waiting;
        landing_t landing;
        psc_wire_frag_t wire;

        waiting_open(&waiting, PSC_RNDV_AM);
        waiting_answered(&waiting);
        wire = (psc_wire_frag_t){.recv_id = psc_req_id(req_of(waiting.recv)),
                                 .offset = SMALL / 2};
        landing = waiting_landing(&waiting, 1);
        for (int i = 0; i <= more; i++)
            hear_payload(waiting.a->lanes[0], PSC_WIRE_FRAG, &wire, sizeof wire,
                         waiting.out, SMALL / 2);
        check((done(waiting.recv)) == more);
        check(landing_write(&landing) == (more ? 0 : SMALL / 2));
        landing_end(&landing);
        check(psc_conn_state(waiting.a) ==
              (more ? PSC_CONN_FAILED : PSC_CONN_UP));
        waiting_close(&waiting);
    }
}

/* A spare lane takes fragments only. */
static psc_lane_t *landing_lane(const waiting_t *waiting)
{
    psc_lane_t *lane = waiting->a->lanes[1];

    return psc_lane_spare(lane) ? waiting->a->lanes[0] : lane;
}

/* b closes, over lane 0, while a lane is receiving a payload: into a bounce
 * buffer, and into its final place. */
CASE(landing_when_a_peer_closes)
{
    static const psc_wire_credit_t farewell;
    psc_wire_rts_t rts = {.context = CONTEXT, .len = 1 << 20};
    psc_wire_eager_t eager = {.context = CONTEXT, .tag = 1};
    waiting_t waiting;

    for (int kind = 0; kind < 2; kind++) {
        landing_t landing;

        waiting_open(&waiting, PSC_RNDV_AM);
        landing = kind ? landing_begin(landing_lane(&waiting), PSC_WIRE_EAGER,
                                       &eager, sizeof eager, 900)
                       : landing_begin(landing_lane(&waiting), PSC_WIRE_RTS,
                                       &rts, sizeof rts, 200);
        check(landing_write(&landing) == (kind ? 900 : 200));
        hear(waiting.a->lanes[0], PSC_WIRE_CLOSE, &farewell, sizeof farewell);
        check(psc_conn_state(waiting.a) == PSC_CONN_CLOSED);
        check(done(waiting.recv));
        check(landing_write(&landing) == 0);
        landing_end(&landing);
        waiting_close(&waiting);
    }
}

/* A connection fails while a message without a receive is arriving, and while
 * the same side's send waits for a receive. */
CASE(landing_beside_a_send)
{
    psc_wire_eager_t eager = {.context = CONTEXT, .tag = 1};
    static char out[SMALL];
    psc_request_t *send;
    landing_t landing;
    pair_t pair;

    pair_open(&pair);
    psc_worker_log_to(pair.a.worker, -1, 0);
    send = post_send(&pair.a, out, SMALL, 2);
    landing = landing_begin(pair.a.conn->lanes[0], PSC_WIRE_EAGER, &eager,
                            sizeof eager, 900);
    check(landing_write(&landing) == 900);
    psc_conn_fail(pair.a.conn, PSC_ERR_PEER_LOST);
    check(landing_write(&landing) == 0);
    landing_end(&landing);
    check(finish(&pair, send).status == PSC_ERR_PEER_LOST);
    pair_close(&pair);
}

/* The payload of a put is arriving when its region is closed. */
CASE(landing_in_a_closed_region)
{
    psc_wire_frag_t wire = {.offset = 0};
    remote_t remote;
    landing_t landing;
    psc_req_t *serving;

    remote_open(&remote, api->put);
    remote_begin(&remote);
    until(&remote.pair, !psc_list_empty(&remote.pair.b.conn->active));
    serving =
        psc_container_of(remote.pair.b.conn->active.next, psc_req_t, link);
    if (serving->stage == PSC_STAGE_SEND_RTR)
        psc_conn_flush(remote.pair.b.conn);
    check(serving->stage == PSC_STAGE_AWAIT_DATA);
    wire.recv_id = psc_req_id(serving);
    landing = landing_begin(remote.pair.b.conn->lanes[0], PSC_WIRE_FRAG, &wire,
                            sizeof wire, SMALL);
    check(landing_write(&landing) == SMALL);
    check(psc_memory_deregister(remote.region) == PSC_OK);
    free(remote.memory);
    check(landing_write(&landing) == 0);
    psc_conn_fail(remote.pair.b.conn, PSC_ERR_PEER_LOST);
    check(landing_write(&landing) == 0);
    psc_conn_fail(remote.pair.a.conn, PSC_ERR_PEER_LOST);
    check(finish(&remote.pair, remote.request).status < 0);
    free(remote.local);
    pair_close(&remote.pair);
}

/* ---- FINs ---- */

/* b sends a FIN although no data was put, and a gave no key. */
CASE(fin_overtakes_fragments)
{
    psc_wire_fin_t fin = {.credit = 1 << 20};
    waiting_t waiting;

    waiting_open(&waiting, PSC_RNDV_AM);
    waiting_answered(&waiting);
    fin.request_id = psc_req_id(req_of(waiting.recv));
    hear(waiting.a->lanes[0], PSC_WIRE_FIN, &fin, sizeof fin);
    check(psc_conn_state(waiting.a) == PSC_CONN_FAILED);
    check(done(waiting.recv));
    check(waiting.recv->result.status == PSC_ERR_PROTOCOL);
    waiting_close(&waiting);
}

/* A key was given, and a fragment is arriving on the other lane when a FIN with
 * this status arrives. */
static void fin_beside_a_landing(int32_t status)
{
    psc_wire_fin_t fin = {.credit = 1 << 20, .status = status};
    waiting_t waiting;
    landing_t landing;

    waiting_open(&waiting, PSC_RNDV_PUT);
    waiting_answered(&waiting);
    fin.request_id = psc_req_id(req_of(waiting.recv));
    landing = waiting_landing(&waiting, 1);
    check(landing.dest.n_iov > 0);
    hear(waiting.a->lanes[0], PSC_WIRE_FIN, &fin, sizeof fin);
    if (done(waiting.recv)) {
        check(waiting.recv->result.status < 0);
        check(landing_write(&landing) == 0);
    }
    landing_end(&landing);
    check(done(waiting.recv));
    check(waiting.recv->result.status < 0);
    waiting_close(&waiting);
}

CASE(fin_beside_a_landing)
{
    fin_beside_a_landing(PSC_OK);
    fin_beside_a_landing(PSC_ERR_TRUNCATED);
}

/* ---- peers that write directly ---- */

/* A transport whose peer is copying as long as `writing` is set. Its endpoints
 * stop at once. */
static struct {
    psc_transport_ops_t ops;
    const psc_transport_ops_t *below;
    bool writing;
    unsigned asked;
} late;

static psc_status_t late_revoke(psc_iface_t *iface, psc_mem_t *mem)
{
    psc_status_t status =
        late.below->mem_revoke ? late.below->mem_revoke(iface, mem) : PSC_OK;

    late.asked++;
    return late.writing ? PSC_INPROGRESS : status;
}

static psc_status_t late_put(psc_ep_t *ep, const void *buffer, size_t len,
                             psc_mem_t *mem, psc_rkey_t *rkey, uint64_t offset,
                             psc_comp_t *comp)
{
    (void)ep, (void)buffer, (void)len, (void)mem, (void)rkey, (void)offset;
    (void)comp;
    return PSC_ERR_NO_RESOURCE; /* the put has not begun */
}

static bool late_wrap(psc_conn_t *conn)
{
    psc_iface_slot_t *slot = conn->lanes[0]->slot;

    if (!(slot->attr.caps & PSC_CAP_PUT)) {
        printf("no put\n");
        return false;
    }
    if (slot->ops == &late.ops) /* both sides share a worker */
        return true;
    memset(&late, 0, sizeof late);
    late.below = slot->ops;
    late.ops = *slot->ops;
    late.ops.mem_revoke = late_revoke;
    late.ops.put = late_put;
    slot->ops = &late.ops;
    late.writing = true;
    return true;
}

static psc_status_t wait_a_little(side_t *side, psc_request_t *request)
{
    psc_status_t status;

    do {
        status = api->wait(side->worker, &request, 1, PSC_WAIT_ALL, 20000000);
    } while (status == PSC_ERR_INTERRUPTED);
    return status;
}

/* The connection fails and its lane has nothing to send, but the receive keeps
 * its buffer until the peer has finished its copy. */
CASE(receive_with_a_late_writer)
{
    waiting_t waiting;

    waiting_open(&waiting, PSC_RNDV_PUT);
    if (late_wrap(waiting.a)) {
        late_wrap(waiting.b);
        waiting_answered(&waiting);
        check(req_of(waiting.recv)->remote_writable);
        psc_conn_fail(waiting.a, PSC_ERR_PEER_LOST);
        check(psc_conn_state(waiting.a) == PSC_CONN_FAILED);
        check(late.asked > 0);
        check(wait_a_little(&waiting.pair.a, waiting.recv) == PSC_ERR_TIMEOUT);
        check(psc_access_count(waiting.pair.a.worker) == 1);
        memset(waiting.buffer, 9,
               SMALL); /* the peer's copy into the buffer goes on */
        late.writing = false;
        check(wait_a_little(&waiting.pair.a, waiting.recv) == PSC_OK);
        check(waiting.recv->result.status == PSC_ERR_PEER_LOST);
        check(psc_access_count(waiting.pair.a.worker) == 0);
    }
    waiting_close(&waiting);
}

CASE(region_with_a_late_writer)
{
    psc_region_t *region;
    char memory[100];
    pair_t pair;

    pair_open(&pair);
    if (late_wrap(pair.b.conn)) {
        check(api->region_create(pair.b.worker, memory, sizeof memory,
                                 &region) == PSC_OK);
        for (int i = 0; i < 10; i++)
            check(psc_memory_deregister(region) == PSC_INPROGRESS);
        late.writing = false;
        api->region_destroy(region);
        check(late.asked == 11);
    }
    pair_close(&pair);
}
