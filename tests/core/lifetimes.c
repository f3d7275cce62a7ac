/* When objects are freed: connections that end and are destroyed while others
 * are in use, and threads that are woken from a wait. */
#include <pthread.h>

#include "harness.h"
#include "pscompy/core/conn.h"

static unsigned listed(psc_list_t *list)
{
    unsigned n = 0;

    for (psc_link_t *link = list->next; link != list; link = link->next)
        n++;
    return n;
}

static unsigned connections(const side_t *side)
{
    return listed(&side->worker->conns) + listed(&side->worker->ends.doomed);
}

/* Make another connection beside the first. */
static void join_another(pair_t *pair, side_t *a, side_t *b)
{
    *a = pair->a;
    *b = pair->b;
    pair_join(pair, &a->conn, &b->conn);
}

static void close_both(pair_t *pair, side_t *a, side_t *b)
{
    psc_conn_close(a->conn);
    until(pair, psc_conn_state(a->conn) == PSC_CONN_CLOSED &&
                    psc_conn_state(b->conn) == PSC_CONN_CLOSED);
}

/* Wait until both ends are freed; if both sides share a worker, it owns
 * both. */
static void expect_freed(pair_t *pair, unsigned before)
{
    until(pair, connections(&pair->a) + connections(&pair->b) == before);
    settle(pair);
}

CASE(destroyed_connections_are_freed)
{
    pair_t pair;
    side_t a, b;
    unsigned before;
    char in[8];
    psc_result_t result;

    pair_open(&pair);
    before = connections(&pair.a) + connections(&pair.b);
    for (unsigned i = 0; i < 200; i++) {
        psc_request_t *recv;

        join_another(&pair, &a, &b);
        recv = post_recv(&b, b.conn, in, 8, 1, &result);
        check(!post_send(&a, "message", 8, 1));
        if (recv)
            result = finish(&pair, recv);
        check(result.source == api->conn_id(b.conn) && result.rank == -1);
        close_both(&pair, &a, &b);
        psc_conn_destroy(a.conn);
        psc_conn_destroy(b.conn);
    }
    expect_freed(&pair, before);
    check(count(pair.a.worker, PSC_COUNTER_connections_made) == 201);
    pair_close(&pair);
}

/* A destroyed connection's unreceived messages are freed; a receive from any
 * source does not find them. */
CASE(destroy_with_unreceived_messages)
{
    enum { LARGE = 300000 };
    char *out = calloc(1, LARGE), in[8];
    psc_request_t *large, *small, *recv;
    psc_result_t result;
    unsigned before;
    pair_t pair;
    side_t a, b;

    pair_open(&pair);
    before = connections(&pair.a) + connections(&pair.b);
    join_another(&pair, &a, &b);
    for (int i = 0; i < 20; i++) {
        small = post_send(&a, "message", 8, i);
        check(!small || finish(&pair, small).status == PSC_OK);
    }
    large = post_send(&a, out, LARGE, 30);
    until(&pair, count(b.worker, PSC_COUNTER_unexpected) == 21);
    psc_conn_destroy(b.conn);
    check(finish(&pair, large).status == PSC_ERR_PEER_LOST);
    psc_conn_destroy(a.conn);
    expect_freed(&pair, before);
    recv = post_recv(&pair.b, NULL, in, 8, PSC_ANY_TAG, &result);
    check(recv);
    check(api->cancel(recv) == PSC_OK);
    api->request_free(recv);
    pair_close(&pair);
    free(out);
}

/* Requests and messages in use keep a destroyed connection allocated. */
CASE(destroy_with_messages_in_hand)
{
    psc_send_args_t args = {.iov = NULL};
    psc_recv_args_t receive = {
        .context = CONTEXT, .tag = 1, .flags = PSC_FLAG_NO_BUFFER};
    psc_request_t *matched = NULL, *request = NULL;
    char in[8];
    psc_iov_t iov = {in, 8};
    psc_message_t *message;
    psc_result_t result;
    unsigned before;
    pair_t pair;
    side_t a, b;
    uint64_t id;

    pair_open(&pair);
    before = connections(&pair.a) + connections(&pair.b);
    join_another(&pair, &a, &b);
    id = api->conn_id(b.conn);
    check(api->am_handler(b.worker, 3, NULL, &pair) == PSC_OK);
    check(api->am_send(a.conn, 3, "h", 1, &args, &request) == PSC_OK);
    receive.source = b.conn;
    check(!post_send(&a, "message", 8, 1));
    until(&pair, api->pending(b.worker) && api->conn_messages(b.conn) == 1 &&
                     count(b.worker, PSC_COUNTER_unexpected) == 1);
    check(api->recv(b.worker, &receive, &result, &matched) == PSC_INPROGRESS);
    close_both(&pair, &a, &b);
    psc_conn_destroy(a.conn);
    psc_conn_destroy(b.conn);
    settle(&pair);
    check(connections(&pair.a) + connections(&pair.b) > before);
    message = api->message_poll(b.worker);
    check(message && api->conn_id(message->source) == id);
    api->message_free(b.worker, message);
    check(api->recv_supply(matched, &iov, 1) == PSC_OK);
    check(matched->result.source == id && memcmp(in, "message", 8) == 0);
    api->request_free(matched);
    expect_freed(&pair, before);
    pair_close(&pair);
}

/* ---- waking ---- */

typedef struct sleeper {
    pthread_t thread;
    psc_worker_t *worker;
    psc_request_t *event;
    int woken;
} sleeper_t;

static void *sleep_until_woken(void *arg)
{
    sleeper_t *self = arg;
    psc_status_t status;

    do {
        status =
            api->wait(self->worker, &self->event, 1, PSC_WAIT_ALL, PSC_FOREVER);
        if (status == PSC_ERR_INTERRUPTED)
            __atomic_fetch_add(&self->woken, 1, __ATOMIC_SEQ_CST);
    } while (status != PSC_OK);
    return NULL;
}

static int woken(sleeper_t *sleeper)
{
    return __atomic_load_n(&sleeper->woken, __ATOMIC_SEQ_CST);
}

/* Wake the poller and a follower that have no other event. Without the wake-up
 * their time slices would end twice a second. */
CASE(wake)
{
    enum { ROUNDS = 100 };
    int quick = 0;
    sleeper_t sleepers[2];
    pair_t pair;

    pair_open(&pair);
    for (int i = 0; i < 2; i++) {
        sleepers[i] = (sleeper_t){.worker = pair.a.worker};
        check(api->event_create(pair.a.worker, 0, NULL, &sleepers[i].event) ==
              PSC_OK);
        check(pthread_create(&sleepers[i].thread, NULL, sleep_until_woken,
                             &sleepers[i]) == 0);
    }
    for (int round = 0; round < ROUNDS; round++) {
        int before[2] = {woken(&sleepers[0]), woken(&sleepers[1])};
        int64_t begun = psc_clock_now();

        while (woken(&sleepers[0]) == before[0] ||
               woken(&sleepers[1]) == before[1]) {
            api->wake(pair.a.worker);
            psc_clock_pause();
        }
        quick += psc_clock_now() - begun < 200000000;
    }
    check(quick > ROUNDS / 10);
    for (int i = 0; i < 2; i++) {
        api->event_complete(sleepers[i].event, PSC_OK);
        check(pthread_join(sleepers[i].thread, NULL) == 0);
        api->request_free(sleepers[i].event);
    }
    pair_close(&pair);
}

/* ---- an interface that is refused ---- */

static const psc_transport_ops_t *refused_ops;
static int refused_stops, refused_passes;
static bool refused_freed;

static void refused_query(psc_iface_t *iface, psc_iface_attr_t *attr_p)
{
    refused_ops->query(iface, attr_p);
    attr_p->rail = UINT32_MAX;
}

static psc_status_t refused_stop(psc_iface_t *iface)
{
    check(!refused_freed);
    return ++refused_stops < 4 ? PSC_INPROGRESS : refused_ops->stop(iface);
}

static unsigned refused_progress(psc_iface_t *iface)
{
    refused_passes++;
    return refused_ops->progress(iface);
}

static void refused_fini(psc_iface_t *iface)
{
    refused_freed = true;
    refused_ops->fini(iface);
}

/* A refused interface is freed only after the fabric has stopped it, like one
 * that was used. */
CASE(refused_interface_stops)
{
    psc_transport_ops_t ops;
    char reason[PSC_REASON_MAX];
    pair_t pair;

    pair_open(&pair);
    refused_ops = (const psc_transport_ops_t *)harness_transport();
    ops = *refused_ops;
    ops.query = refused_query;
    ops.stop = refused_stop;
    ops.progress = refused_progress;
    ops.fini = refused_fini;
    check(pair_open_more(&pair, (uintptr_t)&ops, reason) ==
          PSC_ERR_UNSUPPORTED);
    check(strstr(reason, "rail"));
    check(refused_stops == 4 && refused_passes == 3 && refused_freed);
    pair_close(&pair);
}
