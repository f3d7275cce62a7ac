/* The pool's blocks, lent messages, and peers that send invalid loans. If the
 * transport cannot map, the same messages are copied. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"
#include "hostile.h"
#include "pscompy/core/conn.h"
#include "pscompy/core/memory/memory.h"
#include "pscompy/core/request.h"

enum { LEN = 300000, MANY = 40 };

static bool can_map(const pair_t *pair)
{
    psc_iface_attr_t attr;

    psc_worker_query(pair->a.worker, pair->a.iface, &attr);
    return attr.caps & PSC_CAP_MAP;
}

static psc_block_t *block_with(psc_worker_t *worker, size_t len, unsigned seed,
                               uint32_t flags)
{
    psc_block_t *block = NULL;

    check(api->block_alloc(worker, len, flags, &block) == PSC_OK);
    check(block->nbytes == len && (uintptr_t)block->base % 4096 == 0);
    fill(block->base, len, seed);
    return block;
}

static psc_block_t *block_of(psc_worker_t *worker, size_t len, unsigned seed)
{
    return block_with(worker, len, seed, 0);
}

static psc_request_t *lend(side_t *side, const psc_block_t *block, int32_t tag)
{
    psc_iov_t iov = {block->base, block->nbytes};
    psc_send_args_t args = {.context = CONTEXT,
                            .tag = tag,
                            .iov = &iov,
                            .n_iov = 1,
                            .flags = PSC_FLAG_LEND};
    psc_request_t *request = NULL;
    psc_status_t status = api->send(side->conn, &args, &request);

    check(status == PSC_OK || status == PSC_INPROGRESS);
    return request;
}

/* Post a receive without buffer and wait until it has matched. */
static psc_request_t *match(pair_t *pair, side_t *side, int32_t tag)
{
    psc_recv_args_t args = {.source = side->conn,
                            .context = CONTEXT,
                            .tag = tag,
                            .flags = PSC_FLAG_NO_BUFFER};
    psc_request_t *request = NULL;
    psc_result_t result;

    check(api->recv(side->worker, &args, &result, &request) == PSC_INPROGRESS);
    until(pair, psc_request_state(request) != PSC_REQUEST_ACTIVE);
    return request;
}

static psc_view_t *view_of(pair_t *pair, side_t *side, int32_t tag)
{
    psc_request_t *request = match(pair, side, tag);
    psc_view_t *view = NULL;

    check(api->recv_view(request, &view) == PSC_OK);
    check(done(request));
    check(request->result.status == PSC_OK);
    check(request->result.nbytes == view->nbytes && request->result.tag == tag);
    check(api->recv_view(request, &view) == PSC_ERR_INVALID);
    api->request_free(request);
    return view;
}

static void pool_open(pair_t *pair)
{
    options.pool_max = 64 << 20;
    pair_open(pair);
}

/* ---- blocks ---- */

CASE(blocks)
{
    psc_block_t *blocks[MANY] = {NULL};
    unsigned state = 1;
    pair_t pair;

    pool_open(&pair);
    for (unsigned turn = 0; turn < 4000; turn++) {
        unsigned i = (state = state * 1664525u + 1013904223u) >> 8;
        psc_block_t **block = &blocks[i % MANY];

        if (*block) {
            check(filled((*block)->base, (*block)->nbytes, i % MANY));
            api->block_free(*block);
            *block = NULL;
        } else {
            *block = block_with(pair.a.worker, i % 7 ? i % 9000 : i % 900000,
                                i % MANY, turn % 3 ? PSC_FLAG_PRIVATE : 0);
        }
    }
    check(count(pair.a.worker, PSC_COUNTER_pool_exhausted) == 0);
    check(api->block_alloc(pair.a.worker, 65 << 20, 0, &(psc_block_t *){0}) ==
          PSC_ERR_NO_RESOURCE);
    check(count(pair.a.worker, PSC_COUNTER_pool_exhausted) == 1);
    pair_close(&pair);
    for (unsigned i = 0; i < MANY; i++) {
        if (blocks[i]) {
            check(filled(blocks[i]->base, blocks[i]->nbytes, i));
            api->block_free(blocks[i]);
        }
    }
}

CASE(blocks_at_a_fork)
{
    psc_block_t *shared, *private;
    int status = -1;
    pair_t pair;
    pid_t child;

    pool_open(&pair);
    shared = block_of(pair.a.worker, LEN, 1);
    private = block_with(pair.a.worker, LEN, 2, PSC_FLAG_PRIVATE);
    child = fork();
    if (child == 0) {
        fill(shared->base, LEN, 3);
        fill(private->base, LEN, 3);
        _exit(0);
    }
    check(waitpid(child, &status, 0) == child && status == 0);
    check(filled(shared->base, LEN, 3) && filled(private->base, LEN, 2));
    api->block_free(shared);
    api->block_free(private);
    pair_close(&pair);
}

/* ---- a message ---- */

static void lend_once(pair_t *pair, const psc_block_t *block, unsigned seed)
{
    psc_request_t *request = lend(&pair->a, block, 3);
    psc_view_t *view = view_of(pair, &pair->b, 3);

    check(view->base != block->base && view->nbytes == block->nbytes);
    check(filled(view->base, view->nbytes, seed));
    if (seed % 2)
        settle(pair); /* TAKEN must have been sent */
    check(!done(request));
    api->view_free(view);
    check(finish(pair, request).status == PSC_OK);
}

static void receive_once(pair_t *pair, const psc_block_t *block, unsigned seed)
{
    psc_request_t *send = lend(&pair->a, block, 3);
    psc_request_t *recv = match(pair, &pair->b, 3);
    char *in = malloc(block->nbytes);
    psc_iov_t iov = {in, block->nbytes};
    psc_view_t *view;

    if (!can_map(pair))
        check(api->recv_view(recv, &view) == PSC_ERR_UNSUPPORTED);
    check(api->recv_supply(recv, &iov, 1) >= 0);
    check(finish(pair, recv).status == PSC_OK);
    check(filled(in, block->nbytes, seed));
    sent(pair, send);
    free(in);
}

CASE(lending)
{
    static const size_t lengths[] = {4096, 4097, 70000, LEN, 5 << 20};
    pair_t pair;

    pool_open(&pair);
    for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        psc_block_t *block = block_of(pair.a.worker, lengths[i], i);

        for (int times = 0; times < 3; times++)
            (can_map(&pair) ? lend_once : receive_once)(&pair, block, i);
        api->block_free(block);
    }
    if (can_map(&pair)) {
        check(count(pair.a.worker, PSC_COUNTER_lent) == 15);
        check(count(pair.b.worker, PSC_COUNTER_views_mapped) == 15);
        check(count(pair.b.worker, PSC_COUNTER_segments_mapped) == 1);
    } else {
        check(count(pair.a.worker, PSC_COUNTER_lend_copied) == 15);
    }
    pair_close(&pair);
}

/* Of many segments the one that is used all the time stays mapped. */
CASE(a_segment_in_use_stays_mapped)
{
    enum { SEGMENTS = 17, SIZE = 32768 }; /* one more than stay mapped */
    psc_block_t *blocks[SEGMENTS];
    psc_pool_t *pool;
    pair_t pair;

    pool_open(&pair);
    pool = pair.a.worker->memory.pool;
    for (unsigned i = 0; i < SEGMENTS; i++) {
        pool->max = pool->bytes + SIZE + 4096; /* for a segment of one block */
        blocks[i] = block_of(pair.a.worker, SIZE, i);
    }
    if (can_map(&pair)) {
        for (unsigned i = 1; i < SEGMENTS; i++) {
            lend_once(&pair, blocks[0], 0);
            lend_once(&pair, blocks[i], i);
        }
        lend_once(&pair, blocks[0], 0);
        check(count(pair.b.worker, PSC_COUNTER_segments_mapped) == SEGMENTS);
    }
    for (unsigned i = 0; i < SEGMENTS; i++)
        api->block_free(blocks[i]);
    pair_close(&pair);
}

/* Lent messages received into buffers, with every scheme, expected and
 * unexpected. */
CASE(lent_and_received)
{
    for (int scheme = PSC_RNDV_AUTO; scheme <= PSC_RNDV_AM; scheme++) {
        psc_block_t *block;
        pair_t pair;

        options.scheme = (psc_rndv_scheme_t)scheme;
        pool_open(&pair);
        block = block_of(pair.a.worker, LEN, 9);
        receive_once(&pair, block, 9);
        for (int first = 0; first < 2; first++) {
            char *in = calloc(1, LEN);
            psc_request_t *send = NULL, *recv = NULL;
            psc_result_t result;

            if (first)
                recv = post_recv(&pair.b, pair.b.conn, in, LEN, 4, &result);
            send = lend(&pair.a, block, 4);
            if (!first)
                settle(&pair);
            if (!first)
                recv = post_recv(&pair.b, pair.b.conn, in, LEN, 4, &result);
            if (recv)
                result = finish(&pair, recv);
            check(result.status == PSC_OK && filled(in, LEN, 9));
            sent(&pair, send);
            free(in);
        }
        api->block_free(block);
        pair_close(&pair);
    }
}

/* ---- ends ---- */

/* Returns false if the transport cannot map; the pair is then closed. */
static bool lending_open(pair_t *pair)
{
    pool_open(pair);
    if (can_map(pair))
        return true;
    pair_close(pair);
    return false;
}

/* The workers are destroyed first, then the owner's block is freed, then the
 * view. */
CASE(views_outlive_all)
{
    psc_view_t *views[2];
    psc_request_t *request;
    psc_block_t *block;
    pair_t pair;

    if (!lending_open(&pair))
        return;
    block = block_of(pair.a.worker, LEN, 5);
    for (int i = 0; i < 2; i++) {
        request = lend(&pair.a, block, 1);
        views[i] = view_of(&pair, &pair.b, 1);
        api->request_free(request);
    }
    pair_close(&pair);
    memset(block->base, 0, LEN);
    check(filled(views[0]->base, LEN, 5) && filled(views[1]->base, LEN, 5));
    api->view_free(views[0]);
    api->block_free(block);
    check(filled(views[1]->base, LEN, 5));
    api->view_free(views[1]);
}

static void keep_when(psc_conn_t *(*who)(pair_t *pair), bool fail)
{
    psc_request_t *request;
    psc_block_t *block;
    psc_view_t *view;
    pair_t pair;

    if (!lending_open(&pair))
        return;
    block = block_of(pair.a.worker, LEN, 6);
    request = lend(&pair.a, block, 1);
    view = view_of(&pair, &pair.b, 1);
    if (fail)
        psc_conn_fail(who(&pair), PSC_ERR_PEER_LOST);
    else
        psc_conn_close(who(&pair));
    if (fail) /* b copies the view when it notices the failure */
        until(&pair, count(pair.b.worker, PSC_COUNTER_views_kept) == 1);
    check(finish(&pair, request).status == PSC_OK);
    check(count(pair.b.worker, PSC_COUNTER_views_kept) == 1);
    memset(block->base, 0, LEN);
    check(filled(view->base, LEN, 6));
    api->view_free(view);
    api->block_free(block);
    pair_close(&pair);
}

static psc_conn_t *owner(pair_t *pair)
{
    return pair->a.conn;
}

static psc_conn_t *reader(pair_t *pair)
{
    return pair->b.conn;
}

CASE(views_are_kept)
{
    keep_when(owner, false);
    keep_when(reader, false);
    keep_when(owner, true);
    keep_when(reader, true);
}

/* ---- threads ---- */

typedef struct returns {
    pthread_mutex_t lock;
    psc_view_t *views[MANY];
    unsigned n;
    bool over;
} returns_t;

static void *returns_main(void *arg)
{
    returns_t *returns = arg;
    bool over = false;

    while (!over) {
        psc_view_t *view = NULL;

        pthread_mutex_lock(&returns->lock);
        if (returns->n > 0)
            view = returns->views[--returns->n];
        else
            over = returns->over;
        pthread_mutex_unlock(&returns->lock);
        if (view)
            api->view_free(view);
    }
    return NULL;
}

static void returns_add(returns_t *returns, psc_view_t *view)
{
    pthread_mutex_lock(&returns->lock);
    check(returns->n < MANY);
    returns->views[returns->n++] = view;
    pthread_mutex_unlock(&returns->lock);
}

/* Two threads free views while a third makes progress, and while the workers
 * are destroyed. */
CASE(lending_threads)
{
    returns_t returns = {.lock = PTHREAD_MUTEX_INITIALIZER};
    psc_request_t *requests[MANY];
    psc_block_t *block;
    pthread_t threads[2];
    pair_t pair;

    if (!lending_open(&pair))
        return;
    block = block_of(pair.a.worker, LEN, 2);
    for (int i = 0; i < 2; i++)
        check(!pthread_create(&threads[i], NULL, returns_main, &returns));
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < MANY; i++) {
            requests[i] = lend(&pair.a, block, i);
            returns_add(&returns, view_of(&pair, &pair.b, i));
        }
        for (int i = 0; i < MANY; i++)
            check(finish(&pair, requests[i]).status == PSC_OK);
    }
    for (int i = 0; i < MANY; i++) {
        requests[i] = lend(&pair.a, block, i);
        returns_add(&returns, view_of(&pair, &pair.b, i));
        api->request_free(requests[i]);
    }
    pair_close(&pair);
    pthread_mutex_lock(&returns.lock);
    returns.over = true;
    pthread_mutex_unlock(&returns.lock);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    api->block_free(block);
}

/* ---- invalid loans ---- */

/* Pack the key of the side's segment as in an RTS. */
static size_t key_of(side_t *side, const psc_block_t *block, uint8_t *key,
                     uint64_t *offset_p, size_t *segment_p)
{
    psc_lane_t *lane = side->conn->lanes[0];
    psc_segment_t *segment = psc_pool_find(
        side->worker->memory.pool, block->base, block->nbytes, offset_p);
    psc_wire_key_t head = {.lane = 0};
    size_t len = PSC_RKEY_MAX;

    check(segment);
    check(lane->slot->ops->rkey_pack(lane->ep->iface,
                                     psc_segment_mem(segment, lane->slot),
                                     key + sizeof head, &len) == PSC_OK);
    head.len = (uint8_t)len;
    memcpy(key, &head, sizeof head);
    *segment_p = segment->len;
    return sizeof head + len;
}

static psc_wire_rts_t lent(uint64_t offset, uint64_t len)
{
    return (psc_wire_rts_t){.context = CONTEXT,
                            .n_keys = 1,
                            .flags = PSC_RTS_LENT,
                            .send_id = 1ull << 60,
                            .offset = offset,
                            .len = len};
}

/* Announce a lent message. Returns true if side a could map it. If not, the
 * message stays in its queue. */
static bool announce(pair_t *pair, psc_wire_rts_t rts, const uint8_t *key,
                     size_t len)
{
    static int32_t last_tag;
    psc_view_t *view = NULL;
    psc_request_t *request;
    psc_status_t status;

    rts.tag = (uint32_t)++last_tag;
    hostile_speak(pair->b.conn, PSC_WIRE_RTS, &rts, sizeof rts, key, len);
    request = match(pair, &pair->a, last_tag);
    status = api->recv_view(request, &view);
    check(status == PSC_OK || status == PSC_ERR_UNSUPPORTED);
    if (status == PSC_OK) {
        volatile const uint8_t *base = view->base;

        check(base[0] + base[view->nbytes - 1] >= 0);
        api->view_free(view);
    }
    api->request_free(request);
    return status == PSC_OK;
}

static void loans_that_lie(pair_t *pair, uint64_t offset, uint8_t *key,
                           size_t len, size_t size)
{
    check(!announce(pair, lent(size - 8192, 4097), key, len));
    check(!announce(pair, lent(size - 4096, 1), key, len));
    check(!announce(pair, lent(size, LEN), key, len));
    check(!announce(pair, lent(UINT64_MAX, 2), key, len));
    check(!announce(pair, lent(0, UINT64_MAX), key, len));
    for (size_t cut = 0; cut < len; cut++)
        check(!announce(pair, lent(offset, LEN), key, cut));
    key[0] = 1; /* key of another lane */
    check(!announce(pair, lent(offset, LEN), key, len));
    key[0] = 0;
    check(psc_conn_state(pair->a.conn) == PSC_CONN_UP);
    /* Side b has no request for the FIN, so b's connection ends. */
    check(announce(pair, lent(size - 8192, 4096), key, len));
}

/* Side b announces memory that it does not own; side a must not map any other
 * memory than b's. */
CASE(hostile_loans)
{
    uint8_t key[PSC_RKEY_MAX + 2] = {0};
    psc_block_t *block;
    size_t len, size;
    uint64_t offset;
    pair_t pair;

    pool_open(&pair);
    psc_worker_log_to(pair.a.worker, -1, 0);
    psc_worker_log_to(pair.b.worker, -1, 0);
    if (can_map(&pair)) {
        block = block_of(pair.b.worker, LEN, 1);
        len = key_of(&pair.b, block, key, &offset, &size);
        loans_that_lie(&pair, offset, key, len, size);
        api->block_free(block);
    }
    hostile_part(&pair);
}

/* A TAKEN for a message that was not lent, or for no request, ends the
 * connection. */
static void taken(bool of_a_request)
{
    psc_wire_taken_t wire = {.request_id = 1ull << 32 | 9999};
    static char data[LEN];
    psc_request_t *request;
    pair_t pair;

    pool_open(&pair);
    psc_worker_log_to(pair.a.worker, -1, 0);
    psc_worker_log_to(pair.b.worker, -1, 0);
    request = post_send(&pair.a, data, LEN, 1);
    settle(&pair);
    if (of_a_request)
        wire.request_id =
            psc_req_id(psc_container_of(request, psc_req_t, head));
    hostile_speak(pair.b.conn, PSC_WIRE_TAKEN, &wire, sizeof wire, NULL, 0);
    until(&pair, psc_conn_state(pair.a.conn) == PSC_CONN_FAILED);
    check(done(request) && request->result.status == PSC_ERR_PROTOCOL);
    api->request_free(request);
    hostile_part(&pair);
}

/* Keys for a fabric that has none are ignored. */
static void answer_with_keys(void)
{
    psc_wire_rtr_t rtr = {.n_keys = 1, .len = LEN};
    uint8_t key[34] = {0, 32};
    static char data[LEN];
    psc_request_t *send;
    pair_t pair;

    pool_open(&pair);
    psc_worker_log_to(pair.a.worker, -1, 0);
    psc_worker_log_to(pair.b.worker, -1, 0);
    send = post_send(&pair.a, data, LEN, 0);
    settle(&pair);
    rtr.send_id = psc_req_id(psc_container_of(send, psc_req_t, head));
    hostile_speak(pair.b.conn, PSC_WIRE_RTR, &rtr, sizeof rtr, key, sizeof key);
    settle(&pair);
    hostile_part(&pair);
}

static void announce_with_keys(void)
{
    psc_wire_rts_t rts = {.context = CONTEXT, .n_keys = 1, .len = LEN};
    uint8_t key[34] = {0, 32};
    static char data[LEN];
    psc_result_t result;
    pair_t pair;

    pool_open(&pair);
    psc_worker_log_to(pair.a.worker, -1, 0);
    psc_worker_log_to(pair.b.worker, -1, 0);
    post_recv(&pair.a, pair.a.conn, data, LEN, 0, &result);
    hostile_speak(pair.b.conn, PSC_WIRE_RTS, &rts, sizeof rts, key, sizeof key);
    settle(&pair);
    hostile_part(&pair);
}

CASE(hostile_keys)
{
    taken(false);
    taken(true);
    answer_with_keys();
    announce_with_keys();
}
