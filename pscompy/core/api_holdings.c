/* Contents of the caches and pools of a worker and of its transports, counted
 * when the program asks: nothing is counted per message. */
#include "control.h"
#include "memory/memory.h"
#include "../proto/match.h"
#include "worker.h"

typedef struct holdings {
    psc_counted_t *counted;
    uint32_t n, capacity;
} holdings_t;

static void holdings_add(holdings_t *holdings, const char *name, uint64_t value)
{
    if (holdings->n < holdings->capacity)
        holdings->counted[holdings->n++] = (psc_counted_t){name, value};
}

static uint64_t holdings_length(const psc_list_t *list)
{
    uint64_t n = 0;

    for (const psc_link_t *at = list->next; at != list; at = at->next)
        n++;
    return n;
}

static void holdings_add_requests(holdings_t *holdings,
                                  psc_requests_t *requests)
{
    holdings_add(holdings, "requests", psc_requests_count(requests));
    holdings_add(holdings, "requests_used", psc_requests_used(requests));
}

static uint64_t holdings_buckets(const psc_match_lists_t *lists)
{
    return (uint64_t)psc_match_list_buckets(&lists->posted) +
           psc_match_list_buckets(&lists->probes) +
           psc_match_list_buckets(&lists->unexpected);
}

static uint64_t holdings_record(const psc_unexp_t *unexp)
{
    return sizeof *unexp + unexp->keys_len;
}

/* Returns the bytes of the records that wait for their mark or their RTS
 * (proto/tag.h), and are in no match queue. */
static uint64_t holdings_incomplete(psc_lane_t *lane)
{
    uint64_t bytes = 0;

    psc_list_for_each(unexp, &lane->announced, psc_unexp_t, link)
        bytes += holdings_record(unexp);
    for (psc_unexp_t *at = lane->promised; at; at = at->next_promised)
        bytes += at->req ? holdings_record(at) : 0;
    return bytes;
}

/* Returns the bytes of the records of messages that were announced by RTS and
 * have no receive yet, or whose announcement has not arrived completely. */
static uint64_t holdings_announced(psc_worker_t *worker)
{
    uint64_t bytes = 0;

    psc_list_for_each(conn, &worker->conns, psc_conn_t, link) {
        for (uint32_t i = 0; i < conn->n_lanes; i++)
            bytes += holdings_incomplete(conn->lanes[i]);
    }
    psc_list_for_each(context, &worker->matching.contexts.all, psc_context_t,
                      entry.link) {
        psc_list_for_each(unexp, &context->lists.unexpected.all, psc_unexp_t,
                          any_link) {
            if (unexp->rts)
                bytes += holdings_record(unexp);
        }
    }
    return bytes;
}

static void holdings_add_matching(holdings_t *holdings, psc_worker_t *worker)
{
    uint64_t queues = worker->matching.contexts.n, buckets = 0, maps = 0;

    psc_list_for_each(context, &worker->matching.contexts.all, psc_context_t,
                      entry.link)
        buckets += holdings_buckets(&context->lists);
    psc_list_for_each(conn, &worker->conns, psc_conn_t, link) {
        psc_list_for_each(queue, &conn->queues->all, psc_match_queue_t,
                          entry.link)
            buckets += holdings_buckets(&queue->lists);
        queues += conn->queues->n;
        maps += holdings_length(&conn->maps);
    }
    holdings_add(holdings, "match_queues", queues);
    holdings_add(holdings, "match_buckets", buckets);
    holdings_add(holdings, "peer_segments", maps);
}

static void holdings_add_pool(holdings_t *holdings, psc_pool_t *pool)
{
    uint64_t segments = 0, blocks = 0;

    psc_lock_acquire(&pool->lock);
    psc_list_for_each(segment, &pool->segments, psc_segment_t, link) {
        segments++;
        blocks += segment->used;
    }
    holdings_add(holdings, "pool_bytes", pool->bytes);
    psc_lock_release(&pool->lock);
    holdings_add(holdings, "pool_segments", segments);
    holdings_add(holdings, "pool_blocks_used", blocks);
}

static void holdings_add_transports(holdings_t *holdings,
                                    psc_interfaces_t *interfaces)
{
    psc_iface_for_each(slot, interfaces) {
        if (slot->ops->iface_counters)
            holdings->n += slot->ops->iface_counters(
                slot->iface, holdings->counted + holdings->n,
                holdings->capacity - holdings->n);
    }
}

uint32_t psc_worker_holdings(psc_worker_t *worker, psc_counted_t *counted,
                             uint32_t capacity)
{
    holdings_t holdings = {.counted = counted, .capacity = capacity};

    if (psc_worker_enter(worker, 0) != PSC_OK)
        return 0;
    holdings_add(&holdings, "connections", holdings_length(&worker->conns));
    holdings_add_requests(&holdings, &worker->requests);
    holdings_add(&holdings, "unexpected_bytes", worker->budget.kept);
    holdings_add(&holdings, "announced_bytes", holdings_announced(worker));
    holdings_add(&holdings, "am_kept_bytes", worker->am.idle.bytes);
    holdings_add_matching(&holdings, worker);
    holdings_add_pool(&holdings, worker->memory.pool);
    holdings_add_transports(&holdings, &worker->interfaces);
    psc_worker_leave(worker);
    return holdings.n;
}
