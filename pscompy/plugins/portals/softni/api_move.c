/* Functions of the specification for memory descriptors, put and get. */
#include <stdlib.h>

#include "nic.h"

#define MD_OPTIONS                                                             \
    (PTL_IOVEC | PTL_MD_EVENT_CT_SEND | PTL_MD_EVENT_CT_REPLY |                \
     PTL_MD_EVENT_CT_ACK | PTL_MD_EVENT_CT_BYTES | PTL_MD_UNORDERED |          \
     PTL_MD_EVENT_SUCCESS_DISABLE | PTL_MD_EVENT_SEND_DISABLE |                \
     PTL_MD_VOLATILE)

/* ---- memory descriptors ---- */

static int psni_md_open(psni_ni_t *ni, psni_md_t *md, const ptl_md_t *user)
{
    if (user->eq_handle != PTL_EQ_NONE) {
        md->eq = psni_find(ni, user->eq_handle, PSNI_KIND_EQ);
        if (md->eq == NULL)
            return PTL_ARG_INVALID;
    }
    if (user->ct_handle != PTL_CT_NONE) {
        md->ct = psni_find(ni, user->ct_handle, PSNI_KIND_CT);
        if (md->ct == NULL)
            return PTL_ARG_INVALID;
    }
    if ((user->options & ~MD_OPTIONS) != 0 ||
        !psni_region_init(&md->region, user->start, user->length,
                          (user->options & PTL_IOVEC) != 0,
                          ni->limits.max_iovecs))
        return PTL_ARG_INVALID;
    md->md = *user;
    if (md->eq != NULL)
        md->eq->users++;
    if (md->ct != NULL)
        md->ct->users++;
    return PTL_OK;
}

int PtlMDBind(ptl_handle_ni_t ni_handle, const ptl_md_t *md,
              ptl_handle_md_t *md_handle)
{
    psni_ni_t *ni;
    psni_md_t *bound;
    int rc = psni_enter(ni_handle, PSNI_KIND_NI, &ni);

    if (rc != PTL_OK)
        return rc;
    bound = psni_pool_take(&ni->pools[PSNI_KIND_MD]);
    rc = bound == NULL ? PTL_NO_SPACE : psni_md_open(ni, bound, md);
    if (rc == PTL_OK)
        *md_handle = psni_handle(&bound->object);
    else if (bound != NULL)
        psni_pool_give(&ni->pools[PSNI_KIND_MD], bound);
    psni_leave(ni);
    return rc;
}

int PtlMDRelease(ptl_handle_md_t md_handle)
{
    psni_md_t *md;
    psni_ni_t *ni;
    int rc = psni_enter(md_handle, PSNI_KIND_MD, &md);

    if (rc != PTL_OK)
        return rc;
    ni = md->object.ni;
    if (md->ops > 0) {
        rc = PTL_IN_USE;
    } else {
        if (md->eq != NULL)
            md->eq->users--;
        if (md->ct != NULL)
            md->ct->users--;
        psni_pool_give(&ni->pools[PSNI_KIND_MD], md);
    }
    psni_leave(ni);
    return rc;
}

/* ---- put and get ---- */

/* Makes an operation of a descriptor, to be queued by the caller. */
static int psni_op_begin(psni_md_t *md, psni_verb_t verb, uint64_t offset,
                         uint64_t length, ptl_process_t target,
                         psni_op_t **op_p)
{
    psni_ni_t *ni = md->object.ni;
    psni_peer_t *peer;
    psni_op_t *op;

    if (offset > md->region.length || length > md->region.length - offset ||
        length > ni->limits.max_msg_size)
        return PTL_ARG_INVALID;
    peer = psni_peer_get(ni, target);
    if (peer == NULL || (!peer->admitted && peer->stage != PSNI_STAGE_UP))
        return PTL_ARG_INVALID;
    op = psni_op_make(peer, PSNI_KIND_OP, verb);
    if (op == NULL)
        return PTL_NO_SPACE;
    op->md = md;
    md->ops++;
    op->region = md->region;
    op->offset = offset;
    op->message.length = length;
    *op_p = op;
    return PTL_OK;
}

/* Copies short and volatile bytes, so that the user may reuse the buffer. */
static int psni_put_copy(psni_op_t *op)
{
    uint8_t *copy = op->bytes;

    if (op->length > PSNI_INLINE) {
        if ((op->md->md.options & PTL_MD_VOLATILE) == 0)
            return PTL_OK;
        if (op->length > op->object.ni->limits.max_volatile_size)
            return PTL_ARG_INVALID;
        copy = op->copy = malloc(op->length);
        if (copy == NULL)
            return PTL_NO_SPACE;
    }
    psni_region_read(&op->region, op->offset, copy, op->length);
    op->region = (psni_region_t){.start = copy, .length = op->length};
    op->offset = 0;
    psni_op_tell_send(op, PTL_NI_OK);
    return PTL_OK;
}

int PtlPut(ptl_handle_md_t md_handle, ptl_size_t local_offset,
           ptl_size_t length, ptl_ack_req_t ack_req, ptl_process_t target_id,
           ptl_pt_index_t pt_index, ptl_match_bits_t match_bits,
           ptl_size_t remote_offset, void *user_ptr, ptl_hdr_data_t hdr_data)
{
    psni_md_t *md;
    psni_ni_t *ni;
    psni_op_t *op;
    int rc = psni_enter(md_handle, PSNI_KIND_MD, &md);

    if (rc != PTL_OK)
        return rc;
    ni = md->object.ni;
    rc =
        ack_req != PTL_NO_ACK_REQ && ack_req != PTL_ACK_REQ &&
                ack_req != PTL_CT_ACK_REQ && ack_req != PTL_OC_ACK_REQ
            ? PTL_ARG_INVALID
            : psni_op_begin(md, PSNI_PUT, local_offset, length, target_id, &op);
    if (rc == PTL_OK) {
        op->message.ack_req = (uint8_t)ack_req;
        op->message.pt_index = pt_index;
        op->message.match_bits = match_bits;
        op->message.remote_offset = remote_offset;
        op->message.hdr_data = hdr_data;
        op->user_ptr = user_ptr;
        op->length = length;
        rc = psni_put_copy(op);
        if (rc == PTL_OK)
            psni_send_queue(op);
        else
            psni_op_drop(op);
    }
    psni_leave(ni);
    return rc;
}

int PtlGet(ptl_handle_md_t md_handle, ptl_size_t local_offset,
           ptl_size_t length, ptl_process_t target_id, ptl_pt_index_t pt_index,
           ptl_match_bits_t match_bits, ptl_size_t remote_offset,
           void *user_ptr)
{
    psni_md_t *md;
    psni_ni_t *ni;
    psni_op_t *op;
    int rc = psni_enter(md_handle, PSNI_KIND_MD, &md);

    if (rc != PTL_OK)
        return rc;
    ni = md->object.ni;
    rc = psni_op_begin(md, PSNI_GET, local_offset, length, target_id, &op);
    if (rc == PTL_OK) {
        op->message.pt_index = pt_index;
        op->message.match_bits = match_bits;
        op->message.remote_offset = remote_offset;
        op->user_ptr = user_ptr;
        psni_send_queue(op);
    }
    psni_leave(ni);
    return rc;
}
