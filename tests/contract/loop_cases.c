/* Cases of loop alone: foreign keys and addresses, stale keys, and the end of a
 * long queue. */
#include "harness.h"

static psc_rkey_t *key_of(ct_side_t *side, ct_end_t *end, psc_mem_t *mem,
                          psc_status_t expected)
{
    uint8_t packed[PSC_RKEY_MAX];
    size_t len = sizeof(packed);
    psc_rkey_t *rkey = NULL;
    psc_status_t status;

    ct_check(ct_ops->rkey_pack(side->iface, mem, packed, &len) == PSC_OK,
             "rkey_pack");
    status = ct_ops->rkey_unpack(end->ep, packed, len, &rkey);
    ct_check(status == expected, "%s", psc_status_string(status));
    return rkey;
}

CASE(foreign_key_is_refused)
{
    static char bytes[100];
    ct_pair_t pair;
    ct_side_t other;
    psc_mem_t *mem, *same_place;

    ct_pair_up(&pair);
    ct_side_open(&other);
    ct_ops->mem_register(other.iface, NULL, bytes, sizeof(bytes), &mem);
    ct_ops->mem_register(pair.a->iface, NULL, bytes, sizeof(bytes),
                         &same_place);
    key_of(&other, &pair.x, mem, PSC_ERR_PROTOCOL);
    ct_ops->mem_deregister(pair.a->iface, same_place);
    ct_ops->mem_deregister(other.iface, mem);
    ct_side_close(&other);
    ct_pair_down(&pair);
}

/* The region is deregistered, and its entry in the table is used again. */
CASE(stale_key_is_refused)
{
    static char bytes[100], others[100];
    ct_pair_t pair;
    psc_mem_t *mem;
    psc_rkey_t *rkey;
    const char byte = 'x';

    ct_pair_up(&pair);
    ct_ops->mem_register(pair.a->iface, NULL, bytes, sizeof(bytes), &mem);
    rkey = key_of(pair.a, &pair.x, mem, PSC_OK);
    ct_check(ct_ops->put(pair.x.ep, &byte, 1, NULL, rkey, 99, NULL) == PSC_OK,
             "put");
    ct_ops->mem_deregister(pair.a->iface, mem);
    ct_check(ct_ops->put(pair.x.ep, &byte, 1, NULL, rkey, 0, NULL) < 0, "put");
    ct_ops->mem_register(pair.a->iface, NULL, others, sizeof(others), &mem);
    ct_check(ct_ops->put(pair.x.ep, &byte, 1, NULL, rkey, 0, NULL) < 0, "put");
    ct_check(bytes[99] == 'x' && bytes[0] == 0 && others[0] == 0, "bytes");
    ct_ops->mem_deregister(pair.a->iface, mem);
    ct_ops->rkey_release(pair.x.ep, rkey);
    ct_pair_down(&pair);
}

CASE(foreign_address_is_refused)
{
    ct_pair_t pair, other;

    ct_pair_open(&pair);
    ct_pair_open(&other);
    ct_end_join(&pair.x, &other.y, PSC_ROLE_CONNECTOR);
    ct_until(&pair, pair.x.failed);
    ct_check(pair.x.status == PSC_ERR_CONNECT, "%s", pair.x.reason);
    ct_pair_down(&other);
    ct_pair_down(&pair);
}

CASE(peer_learns_of_the_end)
{
    ct_pair_t pair;
    ct_send_t send;

    ct_pair_up(&pair);
    ct_send(&pair, &pair.x, CT_BCOPY, 100, 1, &send);
    ct_send_finish(&pair, &send);
    ct_end_destroy(&pair.x, NULL);
    ct_until(&pair, pair.y.failed);
    ct_check(pair.y.received == 1, "the message before the end");
    ct_check(pair.y.status == PSC_ERR_CLOSED, "%s", pair.y.reason);
    ct_pair_down(&pair);
}

/* Sends as many messages as the peer's queue holds, and returns their number.
 */
static uint64_t fill_queue(ct_end_t *end)
{
    ct_send_t send;
    uint64_t n = 0;

    while (ct_send_try(end, CT_BCOPY, 8, 1, &send) == PSC_OK) {
        free(send.buffer);
        n++;
    }
    free(send.buffer);
    return n;
}

/* More messages wait than one call of progress delivers. */
CASE(failure_follows_the_last_message)
{
    ct_pair_t pair;
    uint64_t n;

    ct_pair_up(&pair);
    fill_queue(&pair.y);
    n = fill_queue(&pair.x);
    ct_ops->ep_close(pair.x.ep);
    ct_until(&pair, pair.y.failed);
    ct_check(pair.y.received == n, "the failure comes first");
    ct_pair_down(&pair);
}
