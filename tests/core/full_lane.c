/* A lane that accepts nothing: pending requests are not all tried, and a header
 * that does not leave reports no credit. A wrapper around the transport refuses
 * the messages of side a. */
#include "harness.h"
#include "pscompy/core/conn.h"

enum { MESSAGES = 300, LEN = 20000 };

static struct {
    psc_transport_ops_t ops;
    const psc_transport_ops_t *below;
    const psc_ep_t *ep; /* of side a */
    bool full;
    unsigned refused;
} lane_of_a;

static bool refuse(const psc_ep_t *ep)
{
    if (!lane_of_a.full || ep != lane_of_a.ep)
        return false;
    lane_of_a.refused++;
    return true;
}

static psc_status_t full_am_short(psc_ep_t *ep, uint8_t id, const void *header,
                                  uint8_t header_len, const void *payload,
                                  size_t len)
{
    return refuse(ep) ? PSC_ERR_NO_RESOURCE
                      : lane_of_a.below->am_short(ep, id, header, header_len,
                                                  payload, len);
}

static psc_status_t full_am_bcopy(psc_ep_t *ep, uint8_t id, const void *header,
                                  uint8_t header_len, const psc_iov_t *iov,
                                  size_t n_iov)
{
    return refuse(ep) ? PSC_ERR_NO_RESOURCE
                      : lane_of_a.below->am_bcopy(ep, id, header, header_len,
                                                  iov, n_iov);
}

static psc_status_t full_am_zcopy(psc_ep_t *ep, uint8_t id, const void *header,
                                  uint8_t header_len, const psc_iov_t *iov,
                                  size_t n_iov, psc_comp_t *comp)
{
    return refuse(ep) ? PSC_ERR_NO_RESOURCE
                      : lane_of_a.below->am_zcopy(ep, id, header, header_len,
                                                  iov, n_iov, comp);
}

static void full_wrap(psc_conn_t *conn)
{
    psc_lane_t *lane = conn->lanes[0];

    memset(&lane_of_a, 0, sizeof lane_of_a);
    lane_of_a.below = lane->slot->ops;
    lane_of_a.ops = *lane->slot->ops;
    lane_of_a.ep = lane->ep;
    lane_of_a.ops.am_bcopy = full_am_bcopy;
    if (lane_of_a.ops.am_short)
        lane_of_a.ops.am_short = full_am_short;
    if (lane_of_a.ops.am_zcopy)
        lane_of_a.ops.am_zcopy = full_am_zcopy;
    lane->slot->ops = conn->out.ops = &lane_of_a.ops;
}

static unsigned in_stage(const psc_conn_t *conn, psc_stage_t stage)
{
    unsigned n = 0;

    psc_list_for_each(req, (psc_list_t *)&conn->active, psc_req_t, link)
        n += req->stage == stage;
    return n;
}

/* Announced messages, all of which are to be sent as FRAGs. */
CASE(one_stop_per_full_lane)
{
    static char out[LEN], in[MESSAGES][LEN];
    psc_request_t *sends[MESSAGES], *recvs[MESSAGES];
    psc_result_t result;
    unsigned waiting;
    pair_t pair;

    options.scheme = PSC_RNDV_AM;
    pair_open(&pair);
    full_wrap(pair.a.conn);
    fill(out, LEN, 3);
    for (int i = 0; i < MESSAGES; i++)
        sends[i] = post_send(&pair.a, out, LEN, i);
    settle(&pair); /* all are announced */
    lane_of_a.full = true;
    for (int i = 0; i < MESSAGES; i++)
        recvs[i] = post_recv(&pair.b, pair.b.conn, in[i], LEN, i, &result);
    settle(&pair); /* all are answered */
    waiting = in_stage(pair.a.conn, PSC_STAGE_FRAG);
    lane_of_a.refused = 0;
    api->progress(pair.a.worker, 0);
    check(lane_of_a.refused > 0 && lane_of_a.refused <= PSC_WORK_KINDS + 1);
    printf("%u waited, %u were tried\n", waiting, lane_of_a.refused);
    check(waiting == MESSAGES);
    lane_of_a.full = false;
    for (int i = 0; i < MESSAGES; i++) {
        check(finish(&pair, recvs[i]).status == PSC_OK);
        check(finish(&pair, sends[i]).status == PSC_OK);
        check(filled(in[i], LEN, 3));
    }
    pair_close(&pair);
}

/* An RTS is refused. The credit that its header would have reported stays
 * due. */
CASE(credit_of_a_refused_header)
{
    static char out[LEN], in[LEN];
    psc_request_t *send, *recv;
    psc_result_t result;
    psc_flow_t *flow;
    uint32_t granted;
    pair_t pair;

    options.scheme = PSC_RNDV_AM;
    pair_open(&pair);
    settle(&pair);
    flow = &pair.a.conn->flow;
    full_wrap(pair.a.conn);
    lane_of_a.full = true;
    flow->consumed += 100;
    flow->due = true;
    granted = flow->granted;
    send = post_send(&pair.a, out, LEN, 1);
    check(send && lane_of_a.refused > 0);
    check(flow->due && flow->granted == granted);
    lane_of_a.full = false;
    recv = post_recv(&pair.b, pair.b.conn, in, LEN, 1, &result);
    check(finish(&pair, recv).status == PSC_OK);
    check(finish(&pair, send).status == PSC_OK);
    check(!flow->due && flow->granted == granted + 100);
    pair_close(&pair);
}
