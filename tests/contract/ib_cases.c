/* Cases of ib. */
#include "harness.h"
#include "pscompy/plugins/ib/ib.h"

/* A message that is too long is refused before anything is sent for it: the
 * offered ring is not taken into use. */
CASE(too_long_sends_nothing)
{
    ct_pair_t pair;
    ct_send_t send;
    ib_ep_t *x;

    ct_set("EAGER", 0, "rdma");
    ct_pair_up(&pair);
    x = ib_ep(pair.x.ep);
    ct_exchange(&pair, &pair.x, &pair.y, CT_BCOPY, 1, 1);
    ct_until(&pair, x->way == IB_WAY_ANNOUNCED);
    ct_check(ct_send_try(&pair.x, CT_BCOPY, ct_longest(pair.a, CT_BCOPY) + 1, 1,
                         &send) == PSC_ERR_INVALID,
             "%s", psc_status_string(send.status));
    free(send.buffer);
    ct_check(x->way == IB_WAY_ANNOUNCED, "the ring is used from now on");
    ct_exchange(&pair, &pair.x, &pair.y, CT_BCOPY, 1, 1);
    ct_check(x->way == IB_WAY_RING, "the ring is not used");
    ct_pair_down(&pair);
}

/* Slots of a ring whose size is asked to be odd: their tails are aligned. */
CASE(an_odd_buffer_size)
{
    ct_pair_t pair;

    ct_set("BUFFER_SIZE", 2051, "2051");
    ct_set("EAGER", 0, "rdma");
    ct_pair_up(&pair);
    for (int i = 0; i < 100; i++)
        ct_exchange(&pair, &pair.x, &pair.y, CT_BCOPY, 100, 1);
    ct_check(ib_ep(pair.x.ep)->way == IB_WAY_RING, "the ring is not used");
    ct_pair_down(&pair);
}

/* Endpoints whose completions the device has no room for are refused. */
CASE(endpoints_beyond_the_completions)
{
    enum { SENDQ = 64, ENDS = 4 };
    static ct_end_t ends[ENDS];
    ib_device_t *device;
    ct_side_t side;
    psc_ep_t *ep;

    ct_set("SENDQ_SIZE", SENDQ, "64");
    ct_set("COMPQ_SIZE", ENDS * 2 * SENDQ, "512");
    ct_side_open(&side);
    device = &ib_iface(side.iface)->device;
    device->attr.max_cqe = (int)device->comps;
    for (int i = 0; i < ENDS; i++)
        ct_end_create(&ends[i], &side);
    ct_check(side.ops->ep_create(side.iface, NULL, &ep) == PSC_ERR_NO_MEMORY,
             "one more endpoint");
    for (int i = 0; i < ENDS; i++)
        ct_end_destroy(&ends[i], NULL);
    ct_side_close(&side);
}
