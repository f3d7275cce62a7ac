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
    ct_until(&pair, x->way == IB_WAY_OFFERED);
    ct_check(ct_send_try(&pair.x, CT_BCOPY, ct_longest(pair.a, CT_BCOPY) + 1, 1,
                         &send) == PSC_ERR_INVALID,
             "%s", psc_status_string(send.status));
    free(send.buffer);
    ct_check(x->way == IB_WAY_OFFERED, "the ring is used from now on");
    ct_exchange(&pair, &pair.x, &pair.y, CT_BCOPY, 1, 1);
    ct_check(x->way == IB_WAY_RING, "the ring is not used");
    ct_pair_down(&pair);
}
