/* The portal table: finding one of its entries, and disabling it by flow
 * control. */
#include "nic.h"

psni_pt_t *psni_pt_find(psni_ni_t *ni, ptl_pt_index_t index)
{
    if (index > (ptl_pt_index_t)ni->limits.max_pt_index ||
        !ni->tables[index].used)
        return NULL;
    return &ni->tables[index];
}

void psni_pt_disable(psni_ni_t *ni, psni_pt_t *pt, bool report)
{
    ptl_event_t event = {.type = PTL_EVENT_PT_DISABLED,
                         .pt_index = pt->index,
                         .initiator = ni->id,
                         .ni_fail_type = PTL_NI_OK};

    if (!pt->enabled)
        return;
    pt->enabled = false;
    if (report && pt->eq != NULL)
        psni_eq_post(pt->eq, &event);
}
