#include "tag_post.h"

#include "../core/request.h"

bool psc_tag_may(const psc_req_t *req)
{
    return psc_req_source(req)->state == PSC_CONN_UP && req->n_iov <= 1 &&
           !(req->head.flags & PSC_FLAG_NO_BUFFER);
}

bool psc_tag_post(psc_req_t *req)
{
    psc_lane_t *lane = psc_conn_main_lane(psc_req_source(req));
    psc_tag_recv_t *record;

    if (!psc_req_extend(req))
        return false;
    record = &req->bulk->record.tagged;
    *record = (psc_tag_recv_t){
        .source = lane->ep,
        .match = psc_tag_bits(req->context, req->head.result.tag == PSC_ANY_TAG
                                                ? 0
                                                : req->head.result.tag),
        .ignore = PSC_TAG_MARK |
                  (req->head.result.tag == PSC_ANY_TAG ? PSC_TAG_MASK : 0),
        .done = psc_req_source(req)->tagging.done,
    };
    if (req->n_iov)
        record->buffer = *psc_req_piece(req);
    if (lane->slot->ops->tag_post(lane->ep, record) != PSC_OK)
        return false;
    psc_count(psc_req_source(req), PSC_COUNTER_tag_posted, 1);
    return true;
}

bool psc_tag_recall(psc_req_t *req)
{
    psc_lane_t *lane = psc_conn_main_lane(psc_req_source(req));

    if (lane->slot->ops->tag_cancel(lane->ep, psc_req_tagged(req)) != PSC_OK)
        return false;
    psc_list_remove(&req->link);
    return true;
}
