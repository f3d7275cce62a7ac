/* Functions of the specification for list entries: appending, unlinking, and
 * searching messages that arrived without a receive. A non-matching entry is
 * one that matches everything. */
#include "nic.h"

#define LE_OPTIONS                                                             \
    (PTL_IOVEC | PTL_ME_OP_PUT | PTL_ME_OP_GET | PTL_ME_USE_ONCE |             \
     PTL_ME_ACK_DISABLE | PTL_ME_UNEXPECTED_HDR_DISABLE |                      \
     PTL_ME_IS_ACCESSIBLE | PTL_ME_EVENT_LINK_DISABLE |                        \
     PTL_ME_EVENT_COMM_DISABLE | PTL_ME_EVENT_FLOWCTRL_DISABLE |               \
     PTL_ME_EVENT_SUCCESS_DISABLE | PTL_ME_EVENT_OVER_DISABLE |                \
     PTL_ME_EVENT_UNLINK_DISABLE | PTL_ME_EVENT_CT_COMM |                      \
     PTL_ME_EVENT_CT_OVERFLOW | PTL_ME_EVENT_CT_BYTES)
#define ME_OPTIONS                                                             \
    (LE_OPTIONS | PTL_ME_MANAGE_LOCAL | PTL_ME_NO_TRUNCATE | PTL_ME_MAY_ALIGN)

/* A checked request to search unexpected messages (messages that arrived before
 * a receive): by PtlMESearch, or by PtlMEAppend before it links the entry. */
typedef struct psni_request {
    psni_ni_t *ni;
    psni_pt_t *pt;
    psni_ct_t *ct;
    psni_region_t region;
} psni_request_t;

static ptl_me_t psni_le_as_me(const ptl_le_t *le)
{
    return (ptl_me_t){.start = le->start,
                      .length = le->length,
                      .ct_handle = le->ct_handle,
                      .uid = le->uid,
                      .options = le->options,
                      .match_id = {.phys = {PTL_NID_ANY, PTL_PID_ANY}},
                      .ignore_bits = ~(ptl_match_bits_t)0};
}

/* ---- unlinking ---- */

/* Returns what PtlMEUnlink returns for an entry that a message has used up:
 * `rc`. If a test has set the fault `unlink_used`, this is PTL_OK, as in the
 * public reference library, although events of the entry are still queued. */
static int psni_entry_used(psni_ni_t *ni, int rc)
{
    if (!ni->settings.unlink_used)
        return rc;
    ni->counters.used_unlinked++;
    return PTL_OK;
}

static int psni_entry_try_remove(psni_entry_t *entry)
{
    if (entry->linked && entry->under_way == 0 && entry->headers == 0) {
        psni_entry_unlink(entry);
        psni_entry_free(entry);
        return PTL_OK;
    }
    if (!entry->linked && entry->under_way == 0)
        return psni_entry_used(entry->object.ni, PTL_IN_USE);
    return PTL_IN_USE;
}

static int psni_entry_remove(ptl_handle_any_t handle)
{
    psni_entry_t *entry;
    psni_ni_t *ni;
    int rc = PTL_NO_INIT;

    if (!psni_library_ready())
        return rc;
    ni = psni_enter_ni(handle, PSNI_KIND_ENTRY);
    if (ni == NULL)
        return PTL_ARG_INVALID;
    entry = psni_find(ni, handle, PSNI_KIND_ENTRY);
    rc = entry == NULL ? psni_entry_used(ni, PTL_ARG_INVALID)
                       : psni_entry_try_remove(entry);
    psni_leave(ni);
    return rc;
}

int PtlMEUnlink(ptl_handle_me_t me_handle)
{
    return psni_entry_remove(me_handle);
}

int PtlLEUnlink(ptl_handle_le_t le_handle)
{
    return psni_entry_remove(le_handle);
}

/* ---- appending ---- */

static int psni_request_check(psni_request_t *request, ptl_pt_index_t pt_index,
                              const ptl_me_t *me, unsigned type, unsigned known)
{
    psni_ni_t *ni = request->ni;

    request->pt = psni_pt_find(ni, pt_index);
    request->ct = NULL;
    if (me->ct_handle != PTL_CT_NONE) {
        request->ct = psni_find(ni, me->ct_handle, PSNI_KIND_CT);
        if (request->ct == NULL)
            return PTL_ARG_INVALID;
    }
    if (request->pt == NULL || (ni->options & type) == 0 ||
        (me->options & ~known) != 0)
        return PTL_ARG_INVALID;
    if ((request->pt->options & PTL_PT_ONLY_USE_ONCE) != 0 &&
        (me->options & PTL_ME_USE_ONCE) == 0)
        return PTL_ARG_INVALID;
    if (!psni_region_init(&request->region, me->start, me->length,
                          (me->options & PTL_IOVEC) != 0,
                          ni->limits.max_iovecs))
        return PTL_ARG_INVALID;
    return PTL_OK;
}

/* Assigns messages that arrived before the entry `me` to it. Returns true if
 * one of them has used up the entry. */
static bool psni_request_claim(psni_request_t *request, const ptl_me_t *me,
                               void *user_ptr)
{
    psni_claim_t claim = {
        .options = me->options, .user_ptr = user_ptr, .ct = request->ct};
    psni_header_t *header;

    while ((header = psni_header_find(request->pt, me)) != NULL) {
        psni_header_claim(header, &claim);
        if ((me->options & PTL_ME_USE_ONCE) != 0)
            return true;
    }
    return false;
}

static int psni_request_link(psni_request_t *request, const ptl_me_t *me,
                             ptl_list_t list, void *user_ptr,
                             ptl_handle_me_t *handle)
{
    psni_entry_t *entry;

    if (request->pt->n_entries[list] >= request->ni->limits.max_list_size)
        return PTL_LIST_TOO_LONG;
    entry = psni_pool_take(&request->ni->pools[PSNI_KIND_ENTRY]);
    if (entry == NULL)
        return PTL_NO_SPACE;
    entry->pt = request->pt;
    entry->me = *me;
    entry->list = list;
    entry->user_ptr = user_ptr;
    entry->ct = request->ct;
    entry->region = request->region;
    entry->linked = true;
    if (entry->ct != NULL)
        entry->ct->source.object.users++;
    psni_list_add(&request->pt->lists[list], entry);
    request->pt->n_entries[list]++;
    *handle = psni_handle(&entry->object);
    if ((me->options & PTL_ME_EVENT_LINK_DISABLE) == 0)
        psni_entry_report(entry, PTL_EVENT_LINK);
    return PTL_OK;
}

static int psni_entry_append(ptl_handle_ni_t ni_handle, ptl_pt_index_t pt_index,
                             const ptl_me_t *me, unsigned type, unsigned known,
                             ptl_list_t list, void *user_ptr,
                             ptl_handle_any_t *handle)
{
    psni_request_t request;
    int rc = psni_enter(ni_handle, PSNI_KIND_NI, &request.ni);

    if (rc != PTL_OK)
        return rc;
    rc = psni_request_check(&request, pt_index, me, type, known);
    if (list > PTL_OVERFLOW_LIST || handle == NULL)
        rc = PTL_ARG_INVALID;
    if (rc != PTL_OK)
        goto out;
    if (list == PTL_PRIORITY_LIST && psni_request_claim(&request, me, user_ptr))
        *handle = PTL_INVALID_HANDLE;
    else
        rc = psni_request_link(&request, me, list, user_ptr, handle);
out:
    psni_leave(request.ni);
    return rc;
}

int PtlMEAppend(ptl_handle_ni_t ni_handle, ptl_pt_index_t pt_index,
                const ptl_me_t *me, ptl_list_t ptl_list, void *user_ptr,
                ptl_handle_me_t *me_handle)
{
    return psni_entry_append(ni_handle, pt_index, me, PTL_NI_MATCHING,
                             ME_OPTIONS, ptl_list, user_ptr, me_handle);
}

int PtlLEAppend(ptl_handle_ni_t ni_handle, ptl_pt_index_t pt_index,
                const ptl_le_t *le, ptl_list_t ptl_list, void *user_ptr,
                ptl_handle_le_t *le_handle)
{
    ptl_me_t me = psni_le_as_me(le);

    return psni_entry_append(ni_handle, pt_index, &me, PTL_NI_NO_MATCHING,
                             LE_OPTIONS, ptl_list, user_ptr, le_handle);
}

/* ---- searching ---- */

static void psni_search_report(psni_request_t *request,
                               const psni_header_t *header, void *user_ptr)
{
    psni_arrival_t nothing = {.fail = PTL_NI_NO_MATCH,
                              .initiator = request->ni->id};
    ptl_event_t event =
        psni_arrival_event(header == NULL ? &nothing : &header->arrival,
                           PTL_EVENT_SEARCH, request->pt->index);

    event.user_ptr = user_ptr;
    if (header != NULL)
        event.start =
            psni_region_at(&header->entry->region, header->arrival.offset);
    if (request->pt->eq != NULL)
        psni_eq_post(request->pt->eq, &event);
}

/* Reports and deletes every unexpected message that `me` matches; with
 * PTL_ME_USE_ONCE only the first. */
static void psni_search_delete(psni_request_t *request, const ptl_me_t *me,
                               void *user_ptr)
{
    psni_claim_t claim = {.search = true,
                          .options = me->options,
                          .user_ptr = user_ptr,
                          .ct = request->ct};
    psni_header_t *header = psni_header_find(request->pt, me);

    if (header == NULL)
        psni_search_report(request, NULL, user_ptr);
    while (header != NULL) {
        psni_header_claim(header, &claim);
        if ((me->options & PTL_ME_USE_ONCE) != 0)
            return;
        header = psni_header_find(request->pt, me);
    }
}

static int psni_entry_search(ptl_handle_ni_t ni_handle, ptl_pt_index_t pt_index,
                             const ptl_me_t *me, unsigned type, unsigned known,
                             ptl_search_op_t search_op, void *user_ptr)
{
    psni_request_t request;
    int rc = psni_enter(ni_handle, PSNI_KIND_NI, &request.ni);

    if (rc != PTL_OK)
        return rc;
    rc = psni_request_check(&request, pt_index, me, type, known);
    if (search_op > PTL_SEARCH_DELETE)
        rc = PTL_ARG_INVALID;
    if (rc == PTL_OK && search_op == PTL_SEARCH_DELETE)
        psni_search_delete(&request, me, user_ptr);
    else if (rc == PTL_OK)
        psni_search_report(&request, psni_header_find(request.pt, me),
                           user_ptr);
    psni_leave(request.ni);
    return rc;
}

int PtlMESearch(ptl_handle_ni_t ni_handle, ptl_pt_index_t pt_index,
                const ptl_me_t *me, ptl_search_op_t ptl_search_op,
                void *user_ptr)
{
    return psni_entry_search(ni_handle, pt_index, me, PTL_NI_MATCHING,
                             ME_OPTIONS, ptl_search_op, user_ptr);
}

int PtlLESearch(ptl_handle_ni_t ni_handle, ptl_pt_index_t pt_index,
                const ptl_le_t *le, ptl_search_op_t ptl_search_op,
                void *user_ptr)
{
    ptl_me_t me = psni_le_as_me(le);

    return psni_entry_search(ni_handle, pt_index, &me, PTL_NI_NO_MATCHING,
                             LE_OPTIONS, ptl_search_op, user_ptr);
}
