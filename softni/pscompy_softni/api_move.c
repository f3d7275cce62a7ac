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
        md->eq->source.object.users++;
    if (md->ct != NULL)
        md->ct->source.object.users++;
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

static void psni_md_close(void *object)
{
    psni_md_t *md = object;

    if (md->eq != NULL)
        md->eq->source.object.users--;
    if (md->ct != NULL)
        md->ct->source.object.users--;
    psni_pool_give(&md->object.ni->pools[PSNI_KIND_MD], md);
}

int PtlMDRelease(ptl_handle_md_t md_handle)
{
    return psni_release(md_handle, PSNI_KIND_MD, psni_md_close);
}

/* ---- put and get ---- */

/* Makes an operation on the memory of a descriptor. The caller queues the
 * operation. */
static int psni_op_begin(psni_md_t *md, uint64_t offset, ptl_process_t target,
                         const psni_message_t *message, psni_op_t **op_p)
{
    psni_ni_t *ni = md->object.ni;
    psni_peer_t *peer;
    psni_op_t *op;

    if (offset > md->region.length ||
        message->length > md->region.length - offset ||
        message->length > ni->limits.max_msg_size)
        return PTL_ARG_INVALID;
    peer = psni_peer_get(ni, target);
    if (peer == NULL || (!peer->admitted && peer->state != PSNI_PEER_UP))
        return PTL_ARG_INVALID;
    op = psni_op_make(peer, PSNI_KIND_OP, message);
    if (op == NULL)
        return PTL_NO_SPACE;
    op->md = md;
    md->object.users++;
    op->region = md->region;
    op->offset = offset;
    *op_p = op;
    return PTL_OK;
}

/* Copies the bytes of a short or volatile put, so that the user may reuse the
 * buffer. */
static int psni_put_copy(psni_op_t *op)
{
    uint8_t *copy = op->bytes;

    op->length = op->message.length;
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
    psni_op_report_send(op, PTL_NI_OK);
    return PTL_OK;
}

static int psni_move(ptl_handle_md_t md_handle, ptl_size_t local_offset,
                     ptl_process_t target, void *user_ptr,
                     const psni_message_t *message)
{
    psni_md_t *md;
    psni_ni_t *ni;
    psni_op_t *op;
    int rc = psni_enter(md_handle, PSNI_KIND_MD, &md);

    if (rc != PTL_OK)
        return rc;
    ni = md->object.ni;
    rc = psni_op_begin(md, local_offset, target, message, &op);
    if (rc != PTL_OK)
        goto out;
    op->user_ptr = user_ptr;
    if (message->verb == PSNI_PUT)
        rc = psni_put_copy(op);
    if (rc == PTL_OK)
        psni_send_queue(op);
    else
        psni_op_drop(op);
out:
    psni_leave(ni);
    return rc;
}

int PtlPut(ptl_handle_md_t md_handle, ptl_size_t local_offset,
           ptl_size_t length, ptl_ack_req_t ack_req, ptl_process_t target_id,
           ptl_pt_index_t pt_index, ptl_match_bits_t match_bits,
           ptl_size_t remote_offset, void *user_ptr, ptl_hdr_data_t hdr_data)
{
    psni_message_t message = {.verb = PSNI_PUT,
                              .ack_req = (uint8_t)ack_req,
                              .pt_index = pt_index,
                              .length = length,
                              .match_bits = match_bits,
                              .remote_offset = remote_offset,
                              .hdr_data = hdr_data};

    if (ack_req != PTL_NO_ACK_REQ && ack_req != PTL_ACK_REQ &&
        ack_req != PTL_CT_ACK_REQ && ack_req != PTL_OC_ACK_REQ)
        return psni_library_ready() ? PTL_ARG_INVALID : PTL_NO_INIT;
    return psni_move(md_handle, local_offset, target_id, user_ptr, &message);
}

int PtlGet(ptl_handle_md_t md_handle, ptl_size_t local_offset,
           ptl_size_t length, ptl_process_t target_id, ptl_pt_index_t pt_index,
           ptl_match_bits_t match_bits, ptl_size_t remote_offset,
           void *user_ptr)
{
    psni_message_t message = {.verb = PSNI_GET,
                              .pt_index = pt_index,
                              .length = length,
                              .match_bits = match_bits,
                              .remote_offset = remote_offset};

    return psni_move(md_handle, local_offset, target_id, user_ptr, &message);
}
