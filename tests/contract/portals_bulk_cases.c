/* Puts and gets: how they are divided, bounded, supervised and repeated. */
#include "portals_cases.h"

#define REGION 100000u

typedef struct bulk {
    ct_pair_t pair;
    char target[REGION], local[REGION];
    psc_mem_t *mem;
    psc_rkey_t *rkey;
} bulk_t;

static bulk_t bulk;

static void bulk_up(void)
{
    uint8_t packed[PSC_RKEY_MAX];
    size_t len = sizeof(packed);

    ct_pair_up(&bulk.pair);
    ct_check(ct_ops->mem_register(bulk.pair.b->iface, bulk.pair.y.ep,
                                  bulk.target, REGION, &bulk.mem) == PSC_OK,
             "mem_register");
    ct_check(ct_ops->rkey_pack(bulk.pair.b->iface, bulk.mem, packed, &len) ==
                 PSC_OK,
             "rkey_pack");
    ct_check(ct_ops->rkey_unpack(bulk.pair.x.ep, packed, len, &bulk.rkey) ==
                 PSC_OK,
             "rkey_unpack");
}

static void bulk_down(void)
{
    ct_ops->rkey_release(bulk.pair.x.ep, bulk.rkey);
    ct_ops->mem_deregister(bulk.pair.b->iface, bulk.mem);
    ct_pair_down(&bulk.pair);
}

static void bulk_put(void)
{
    ct_send_t send;

    ct_pattern_fill(bulk.local, REGION, 5);
    ct_send_make(&send);
    ct_check(ct_ops->put(bulk.pair.x.ep, bulk.local, REGION, NULL, bulk.rkey, 0,
                         &send.comp) == PSC_INPROGRESS,
             "put");
    ct_until(&bulk.pair, send.done);
    ct_check(send.status == PSC_OK, "%s", psc_status_string(send.status));
    ct_check(ct_pattern_check(bulk.target, REGION, 5), "what was put");
}

static void expect_fragments(uint64_t size)
{
    uint64_t n = (REGION + size - 1) / size;

    bulk_up();
    bulk_put();
    ct_check(counter(bulk.pair.a, PSPTL_COUNTER_fragments) == n,
             "%llu fragments, not %llu",
             (unsigned long long)counter(bulk.pair.a, PSPTL_COUNTER_fragments),
             (unsigned long long)n);
    bulk_down();
}

CASE(fragment_size_cuts_a_put)
{
    set_number("RNDV_FRAGMENT_SIZE", 1024);
    expect_fragments(1024);
    set_number("RNDV_FRAGMENT_SIZE", 30000);
    expect_fragments(30000);
    set_number("RNDV_FRAGMENT_SIZE", INT64_MAX);
    expect_fragments(REGION);
    fault("max_message", 16384); /* the interface's limit holds */
    expect_fragments(16384);
}

CASE(rendezvous_requests_are_bounded)
{
    psc_mem_t *mems[3];
    ct_pair_t pair;

    set_number("MAX_RNDV_REQS", 2);
    ct_pair_up(&pair);
    for (int i = 0; i < 3; i++)
        ct_check(ct_ops->mem_register(pair.a->iface, pair.x.ep, bulk.target, 10,
                                      &mems[i]) ==
                     (i < 2 ? PSC_OK : PSC_ERR_NO_RESOURCE),
                 "registration %d", i);
    ct_check(counter(pair.a, PSPTL_COUNTER_regions_refused) == 1, "refused");
    ct_ops->mem_deregister(pair.a->iface, mems[0]);
    ct_check(ct_ops->mem_register(pair.a->iface, pair.x.ep, bulk.target, 10,
                                  &mems[0]) == PSC_OK,
             "after one was given back");
    ct_ops->mem_deregister(pair.a->iface, mems[0]);
    ct_ops->mem_deregister(pair.a->iface, mems[1]);
    ct_pair_down(&pair);
}

CASE(fostering_looks_more_often)
{
    for (uint32_t foster = 0; foster <= 3; foster += 3) {
        uint64_t polls;

        set_number("FOSTER_PROGRESS", foster);
        bulk_up();
        bulk_put();
        polls = counter(bulk.pair.a, PSPTL_COUNTER_foster_polls);
        ct_check((polls > 0) == (foster > 0), "%llu further polls",
                 (unsigned long long)polls);
        bulk_down();
    }
}

CASE(dropped_fragments_are_sent_again)
{
    fault("fail_acks", MILLION / 20);
    set_number("RNDV_FRAGMENT_SIZE", 1024);
    bulk_up();
    for (int i = 0; i < 5; i++)
        bulk_put();
    ct_check(counter(bulk.pair.a, PSPTL_COUNTER_fragment_resends) > 0,
             "no fragment was sent again");
    bulk_down();
}

/* ---- a channel that fails ---- */

static int put_not_from_local(ptl_handle_md_t md, ptl_size_t local,
                              ptl_size_t len, ptl_ack_req_t ack,
                              ptl_process_t target, ptl_pt_index_t pt,
                              ptl_match_bits_t bits, ptl_size_t remote,
                              void *user, ptl_hdr_data_t data)
{
    if (local - (uintptr_t)bulk.local < REGION)
        return PTL_FAIL;
    return real_ni->PtlPut(md, local, len, ack, target, pt, bits, remote, user,
                           data);
}

static psc_status_t put_from(ct_end_t *end, const char *local, ct_send_t *send)
{
    ct_send_make(send);
    return ct_ops->put(end->ep, local, REGION, NULL, bulk.rkey, 0, &send->comp);
}

/* The interface takes no put of one channel. The puts of another do not wait
 * until the first is destroyed. */
CASE(a_put_that_fails_holds_up_no_other)
{
    static char other[REGION];
    ct_send_t failing, send;
    ct_end_t x, y;

    bulk_up();
    ct_end_create(&x, bulk.pair.a);
    ct_end_create(&y, bulk.pair.b);
    ct_end_join(&y, &x, PSC_ROLE_ACCEPTOR);
    ct_end_join(&x, &y, PSC_ROLE_CONNECTOR);
    ct_until(&bulk.pair, x.up && y.up);
    ct_pattern_fill(other, REGION, 6);
    ni_wrap(bulk.pair.a)->PtlPut = put_not_from_local;
    ct_check(put_from(&bulk.pair.x, bulk.local, &failing) == PSC_INPROGRESS,
             "a put");
    ct_check(put_from(&x, other, &send) == PSC_INPROGRESS, "another put");
    ct_until(&bulk.pair, send.done && bulk.pair.x.failed);
    ct_check(send.status == PSC_OK && ct_pattern_check(bulk.target, REGION, 6),
             "%s", psc_status_string(send.status));
    ct_check(strstr(bulk.pair.x.reason, "takes no put"), "%s",
             bulk.pair.x.reason);
    ct_end_destroy(&x, bulk.pair.b);
    ct_end_destroy(&y, bulk.pair.a);
    bulk_down();
}
