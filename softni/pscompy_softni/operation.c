/* Operations (puts, gets, and answers to those of peers): creating them,
 * posting their events, and ending them. */
#include <stdlib.h>

#include "nic.h"

psni_op_t *psni_op_make(psni_peer_t *peer, psni_kind_t kind,
                        const psni_message_t *message)
{
    psni_op_t *op = psni_pool_take(&peer->ni->pools[kind]);

    if (op == NULL)
        return NULL;
    op->peer = peer;
    op->message = *message;
    if (kind == PSNI_KIND_OP)
        op->message.id =
            (uint64_t)op->object.generation << 32 | op->object.index;
    psc_list_push(&peer->ops, &op->all);
    psc_list_init(&op->queue);
    return op;
}

psni_op_t *psni_op_find(psni_peer_t *peer, uint64_t id, psni_verb_t verb)
{
    psni_pool_t *pool = &peer->ni->pools[PSNI_KIND_OP];
    psni_op_t *op = (psni_op_t *)psni_pool_at(pool, (uint32_t)id);

    if (op == NULL || op->message.id != id || op->peer != peer ||
        op->message.verb != verb || !op->done || op->frames > 0)
        return NULL;
    return op;
}

void psni_op_drop(psni_op_t *op)
{
    psc_list_remove(&op->all);
    psc_list_remove(&op->queue);
    if (op->md != NULL)
        op->md->object.users--;
    free(op->copy);
    psni_pool_give(&op->object.ni->pools[op->object.kind], op);
}

static void psni_op_report(psni_op_t *op, ptl_event_kind_t type, unsigned when,
                           bool full, const psni_message_t *result)
{
    psni_md_t *md = op->md;
    bool failed = result->fail != PTL_NI_OK;
    ptl_event_t event = {.type = type,
                         .user_ptr = op->user_ptr,
                         .rlength = op->message.length,
                         .mlength = result->length,
                         .remote_offset = result->remote_offset,
                         .match_bits = op->message.match_bits,
                         .hdr_data = op->message.hdr_data,
                         .pt_index = op->message.pt_index,
                         .initiator = op->object.ni->id,
                         .ptl_list = (result->flags & PSNI_UNEXPECTED) != 0
                                         ? PTL_OVERFLOW_LIST
                                         : PTL_PRIORITY_LIST,
                         .ni_fail_type = result->fail};

    if (md->ct != NULL && (md->md.options & when) != 0)
        psni_ct_count(
            md->ct, failed,
            (md->md.options & PTL_MD_EVENT_CT_BYTES) != 0 ? result->length : 1);
    if (md->eq == NULL || !full ||
        (!failed && (md->md.options & PTL_MD_EVENT_SUCCESS_DISABLE) != 0))
        return;
    psni_eq_post(md->eq, &event);
}

void psni_op_report_send(psni_op_t *op, ptl_ni_fail_t fail)
{
    psni_message_t result = {.fail = fail,
                             .length = op->message.length,
                             .remote_offset = op->message.remote_offset};

    op->send_reported = true;
    psni_op_report(op, PTL_EVENT_SEND, PTL_MD_EVENT_CT_SEND,
                   (op->md->md.options & PTL_MD_EVENT_SEND_DISABLE) == 0,
                   &result);
}

static void psni_op_answered(psni_op_t *op)
{
    if (op->entry != NULL)
        psni_match_end(op->entry, op->header, &op->arrival);
    psni_op_drop(op);
}

void psni_op_sent(psni_op_t *op)
{
    if (op->object.kind == PSNI_KIND_ANSWER) {
        psni_op_answered(op);
        return;
    }
    if (op->message.verb == PSNI_GET)
        return;
    if (!op->send_reported)
        psni_op_report_send(op, PTL_NI_OK);
    if (op->message.ack_req == PTL_NO_ACK_REQ)
        psni_op_drop(op);
}

void psni_op_end(psni_op_t *op, const psni_message_t *result)
{
    if (op->message.verb == PSNI_GET)
        psni_op_report(op, PTL_EVENT_REPLY, PTL_MD_EVENT_CT_REPLY, true,
                       result);
    else if ((result->flags & PSNI_SILENT) == 0)
        psni_op_report(op, PTL_EVENT_ACK, PTL_MD_EVENT_CT_ACK,
                       op->message.ack_req == PTL_ACK_REQ, result);
    psni_op_drop(op);
}

void psni_op_fail(psni_op_t *op, ptl_ni_fail_t fail)
{
    psni_message_t result = {.fail = fail,
                             .remote_offset = op->message.remote_offset};

    if (op->object.kind == PSNI_KIND_ANSWER) {
        op->arrival.fail = fail;
        psni_op_answered(op);
        return;
    }
    if (op->message.verb == PSNI_PUT && !op->send_reported)
        psni_op_report_send(op, fail);
    if (op->message.verb == PSNI_GET || op->message.ack_req != PTL_NO_ACK_REQ)
        psni_op_end(op, &result);
    else
        psni_op_drop(op);
}
