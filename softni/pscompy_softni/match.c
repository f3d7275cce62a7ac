/* Finds the list entry that takes a message, and posts the events of the
 * message. A message that only the overflow list takes leaves a header, which a
 * later entry of the priority list or a search may claim. */
#include <stdlib.h>

#include "nic.h"

/* maximum number of events of one message: the event of the message, and an
 * AUTO_UNLINK */
#define PROMISED 2u
#define LATE_NS 1000000

static psni_entry_t *psni_match_find(const psni_pt_t *pt,
                                     const psni_arrival_t *arrival)
{
    psni_entry_t *entry =
        psni_list_find(&pt->lists[PTL_PRIORITY_LIST], arrival);

    return entry != NULL
               ? entry
               : psni_list_find(&pt->lists[PTL_OVERFLOW_LIST], arrival);
}

/* ---- permission ---- */

static ptl_ni_fail_t psni_match_table(psni_ni_t *ni, psni_pt_t *pt,
                                      const psni_arrival_t *arrival)
{
    bool controlled;

    if (pt == NULL)
        return PTL_NI_DROPPED;
    controlled = (pt->options & PTL_PT_FLOWCTRL) != 0;
    if (!pt->enabled)
        return PTL_NI_PT_DISABLED;
    if (arrival->verb != PSNI_PUT)
        return PTL_NI_OK;
    if (controlled && psni_dice(ni, ni->settings.disable_tables)) {
        ni->counters.tables_disabled++;
        psni_pt_disable(ni, pt, true);
        return PTL_NI_PT_DISABLED;
    }
    if (psni_dice(ni, ni->settings.fail_acks)) {
        ni->counters.acks_failed++;
        return PTL_NI_DROPPED;
    }
    return PTL_NI_OK;
}

/* Refuses a message that no list entry takes, or for which a resource is
 * exhausted: drops it, or disables the portal table entry if that has flow
 * control. */
static ptl_ni_fail_t psni_match_exhausted(psni_ni_t *ni, psni_pt_t *pt,
                                          bool report)
{
    if ((pt->options & PTL_PT_FLOWCTRL) == 0)
        return PTL_NI_DROPPED;
    psni_pt_disable(ni, pt, report);
    return PTL_NI_PT_DISABLED;
}

static ptl_ni_fail_t psni_match_allowed(psni_ni_t *ni,
                                        const psni_entry_t *entry,
                                        const psni_arrival_t *arrival)
{
    unsigned needed = arrival->verb == PSNI_PUT ? PTL_ME_OP_PUT : PTL_ME_OP_GET;

    if (entry->me.uid != PTL_UID_ANY && entry->me.uid != arrival->uid) {
        ni->registers[PTL_SR_PERMISSION_VIOLATIONS]++;
        return PTL_NI_PERM_VIOLATION;
    }
    if ((entry->me.options & needed) == 0) {
        ni->registers[PTL_SR_OPERATION_VIOLATIONS]++;
        return PTL_NI_OP_VIOLATION;
    }
    return PTL_NI_OK;
}

/* ---- taking a message ---- */

static bool psni_entry_wants_header(const psni_entry_t *entry)
{
    return entry->list == PTL_OVERFLOW_LIST &&
           (entry->me.options & PTL_ME_UNEXPECTED_HDR_DISABLE) == 0;
}

static psni_header_t *psni_header_make(psni_ni_t *ni, psni_entry_t *entry,
                                       const psni_arrival_t *arrival)
{
    psni_header_t *header;

    if (ni->n_headers >= ni->limits.max_unexpected_headers)
        return NULL;
    header = calloc(1, sizeof(*header));
    if (header == NULL)
        return NULL;
    header->entry = entry;
    header->arrival = *arrival;
    psni_headers_add(&entry->pt->unexpected, header);
    entry->headers++;
    ni->n_headers++;
    return header;
}

static void psni_entry_use(psni_entry_t *entry, psni_arrival_t *arrival)
{
    uint64_t room;

    arrival->offset = psni_entry_offset(entry, arrival);
    room = psni_entry_room(entry, arrival->offset);
    arrival->mlength = arrival->rlength < room ? arrival->rlength : room;
    entry->under_way++;
    if (entry->pt->eq != NULL)
        entry->pt->eq->promised += PROMISED;
    if ((entry->me.options & PTL_ME_MANAGE_LOCAL) != 0) {
        entry->filled += arrival->mlength;
        if (entry->region.length - entry->filled < entry->me.min_free)
            psni_entry_unlink(entry);
    }
    if ((entry->me.options & PTL_ME_USE_ONCE) != 0)
        psni_entry_unlink(entry);
}

static ptl_ni_fail_t psni_match_take(psni_ni_t *ni, psni_pt_t *pt,
                                     psni_arrival_t *arrival,
                                     psni_entry_t **entry_p,
                                     psni_header_t **header_p)
{
    psni_entry_t *entry = psni_match_find(pt, arrival);
    psni_header_t *header = NULL;
    ptl_ni_fail_t fail;
    bool report;

    if (entry == NULL)
        return psni_match_exhausted(ni, pt, true);
    report = (entry->me.options & PTL_ME_EVENT_FLOWCTRL_DISABLE) == 0;
    fail = psni_match_allowed(ni, entry, arrival);
    if (fail != PTL_NI_OK)
        return fail;
    if ((pt->options & PTL_PT_FLOWCTRL) != 0 && !psni_eq_room(pt->eq, PROMISED))
        return psni_match_exhausted(ni, pt, report);
    if (psni_entry_wants_header(entry)) {
        header = psni_header_make(ni, entry, arrival);
        if (header == NULL)
            return psni_match_exhausted(ni, pt, report);
    }
    psni_entry_use(entry, arrival);
    *header_p = header;
    *entry_p = entry;
    return PTL_NI_OK;
}

void psni_match(psni_ni_t *ni, uint32_t pt_index, psni_arrival_t *arrival,
                psni_entry_t **entry_p, psni_header_t **header_p)
{
    psni_pt_t *pt = psni_pt_find(ni, pt_index);

    *entry_p = NULL;
    *header_p = NULL;
    arrival->fail = psni_match_table(ni, pt, arrival);
    if (arrival->fail == PTL_NI_OK)
        arrival->fail = psni_match_take(ni, pt, arrival, entry_p, header_p);
    if (arrival->fail == PTL_NI_DROPPED)
        ni->registers[PTL_SR_DROP_COUNT]++;
}

/* ---- reporting a message ---- */

ptl_event_t psni_arrival_event(const psni_arrival_t *arrival,
                               ptl_event_kind_t type, uint32_t pt_index)
{
    return (ptl_event_t){.type = type,
                         .hdr_data = arrival->hdr_data,
                         .match_bits = arrival->match_bits,
                         .rlength = arrival->rlength,
                         .mlength = arrival->mlength,
                         .remote_offset = arrival->remote_offset,
                         .initiator = arrival->initiator,
                         .uid = arrival->uid,
                         .pt_index = pt_index,
                         .ni_fail_type = arrival->fail};
}

/* Posts an event. With the injected fault `reorder_events`, one event is kept
 * until the next one was posted. */
static void psni_match_post(psni_entry_t *entry, const ptl_event_t *event)
{
    psni_ni_t *ni = entry->object.ni;
    psni_eq_t *eq = entry->pt->eq;

    if (ni->late_eq == NULL && (entry->me.options & PTL_ME_USE_ONCE) != 0 &&
        entry->list == PTL_PRIORITY_LIST &&
        psni_dice(ni, ni->settings.reorder_events)) {
        ni->counters.events_reordered++;
        ni->late_eq = eq;
        ni->late_event = *event;
        ni->late_until = psc_clock_now() + LATE_NS;
        psni_timer(ni, ni->late_until);
        return;
    }
    psni_eq_post(eq, event);
    if (ni->late_eq == eq)
        psni_match_post_late(ni);
}

void psni_match_post_late(psni_ni_t *ni)
{
    psni_eq_t *eq = ni->late_eq;

    ni->late_eq = NULL;
    if (eq != NULL)
        psni_eq_post(eq, &ni->late_event);
}

static bool psni_silent(unsigned options, ptl_ni_fail_t fail, unsigned disabled)
{
    return (options & disabled) != 0 ||
           (fail == PTL_NI_OK && (options & PTL_ME_EVENT_SUCCESS_DISABLE) != 0);
}

static void psni_arrival_count(psni_ct_t *ct, unsigned options, unsigned when,
                               const psni_arrival_t *arrival)
{
    bool bytes = (options & PTL_ME_EVENT_CT_BYTES) != 0;

    if (ct != NULL && (options & when) != 0)
        psni_ct_count(ct, arrival->fail != PTL_NI_OK,
                      bytes ? arrival->mlength : 1);
}

static void psni_header_report(psni_header_t *header)
{
    const psni_claim_t *claim = &header->claim;
    psni_entry_t *entry = header->entry;
    ptl_event_t event = psni_arrival_event(&header->arrival,
                                           header->arrival.verb == PSNI_PUT
                                               ? PTL_EVENT_PUT_OVERFLOW
                                               : PTL_EVENT_GET_OVERFLOW,
                                           entry->pt->index);

    if (claim->search)
        event.type = PTL_EVENT_SEARCH;
    event.start = psni_region_at(&entry->region, header->arrival.offset);
    event.user_ptr = claim->user_ptr;
    event.ptl_list = PTL_PRIORITY_LIST;
    psni_arrival_count(claim->ct, claim->options, PTL_ME_EVENT_CT_OVERFLOW,
                       &header->arrival);
    if (entry->pt->eq != NULL &&
        !psni_silent(claim->options, event.ni_fail_type,
                     claim->search ? 0 : PTL_ME_EVENT_OVER_DISABLE))
        psni_eq_post(entry->pt->eq, &event);
    psni_entry_report_unlink(entry->pt, claim);
    psni_header_drop(header);
}

void psni_match_end(psni_entry_t *entry, psni_header_t *header,
                    const psni_arrival_t *arrival)
{
    psni_pt_t *pt = entry->pt;
    ptl_event_t event = psni_arrival_event(
        arrival, arrival->verb == PSNI_PUT ? PTL_EVENT_PUT : PTL_EVENT_GET,
        pt->index);

    event.start = psni_region_at(&entry->region, arrival->offset);
    event.user_ptr = entry->user_ptr;
    event.ptl_list = entry->list;
    psni_arrival_count(entry->ct, entry->me.options, PTL_ME_EVENT_CT_COMM,
                       arrival);
    if (pt->eq != NULL) {
        pt->eq->promised -= PROMISED;
        if (!psni_silent(entry->me.options, arrival->fail,
                         PTL_ME_EVENT_COMM_DISABLE))
            psni_match_post(entry, &event);
    }
    if (header != NULL) {
        header->complete = true;
        header->arrival = *arrival;
        if (header->claim.made)
            psni_header_report(header);
        else if (arrival->fail != PTL_NI_OK)
            psni_header_drop(header);
    }
    entry->under_way--;
    psni_entry_release(entry);
}

/* ---- unexpected headers ---- */

void psni_header_claim(psni_header_t *header, const psni_claim_t *claim)
{
    psni_headers_remove(&header->entry->pt->unexpected, header);
    header->claim = *claim;
    header->claim.made = true;
    if (claim->ct != NULL)
        claim->ct->source.object.users++;
    if (header->complete)
        psni_header_report(header);
}

void psni_header_drop(psni_header_t *header)
{
    psni_entry_t *entry = header->entry;

    if (header->claim.ct != NULL)
        header->claim.ct->source.object.users--;
    if (!header->claim.made)
        psni_headers_remove(&entry->pt->unexpected, header);
    entry->object.ni->n_headers--;
    entry->headers--;
    free(header);
    psni_entry_release(entry);
}
