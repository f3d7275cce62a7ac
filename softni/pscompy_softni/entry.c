/* Unlinks list entries, frees them, and posts the events about this. */
#include "nic.h"

void psni_entry_report(const psni_entry_t *entry, ptl_event_kind_t type)
{
    ptl_event_t event = {.type = type,
                         .start = entry->me.start,
                         .user_ptr = entry->user_ptr,
                         .pt_index = entry->pt->index,
                         .ptl_list = entry->list,
                         .initiator = entry->object.ni->id};

    if (entry->pt->eq != NULL)
        psni_eq_post(entry->pt->eq, &event);
}

/* Posts AUTO_UNLINK for an entry that an earlier message used up before the
 * entry was linked. */
void psni_entry_report_unlink(psni_pt_t *pt, const psni_claim_t *claim)
{
    ptl_event_t event = {.type = PTL_EVENT_AUTO_UNLINK,
                         .user_ptr = claim->user_ptr,
                         .pt_index = pt->index,
                         .ptl_list = PTL_PRIORITY_LIST};

    if (pt->eq != NULL && !claim->search &&
        (claim->options & PTL_ME_USE_ONCE) != 0 &&
        (claim->options & PTL_ME_EVENT_UNLINK_DISABLE) == 0)
        psni_eq_post(pt->eq, &event);
}

void psni_entry_unlink(psni_entry_t *entry)
{
    psni_list_remove(entry);
    entry->linked = false;
}

void psni_entry_free(psni_entry_t *entry)
{
    entry->pt->n_entries[entry->list]--;
    if (entry->ct != NULL)
        entry->ct->source.object.users--;
    psni_pool_give(&entry->object.ni->pools[PSNI_KIND_ENTRY], entry);
}

void psni_entry_release(psni_entry_t *entry)
{
    bool silent = (entry->me.options & PTL_ME_EVENT_UNLINK_DISABLE) != 0;

    if (entry->linked || entry->under_way > 0)
        return;
    if (!entry->unlink_reported && !silent)
        psni_entry_report(entry, PTL_EVENT_AUTO_UNLINK);
    entry->unlink_reported = true;
    if (entry->headers > 0)
        return;
    if (entry->list == PTL_OVERFLOW_LIST && !silent)
        psni_entry_report(entry, PTL_EVENT_AUTO_FREE);
    psni_entry_free(entry);
}
