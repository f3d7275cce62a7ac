/* Functions of the specification for the portal table. */
#include "nic.h"

#ifndef PTL_PT_MATCH_UNORDERED /* some headers of Portals 4 lack this option   \
                                */
#define PTL_PT_MATCH_UNORDERED 0u
#endif

#define KNOWN_OPTIONS                                                          \
    (PTL_PT_ONLY_USE_ONCE | PTL_PT_FLOWCTRL | PTL_PT_ONLY_TRUNCATE |           \
     PTL_PT_MATCH_UNORDERED)

static int psni_pt_choose(const psni_ni_t *ni, ptl_pt_index_t wanted,
                          ptl_pt_index_t *chosen)
{
    ptl_pt_index_t last = (ptl_pt_index_t)ni->limits.max_pt_index;
    bool any = wanted == (ptl_pt_index_t)PTL_PT_ANY;
    ptl_pt_index_t index = any ? 0 : wanted;

    if (index > last)
        return PTL_ARG_INVALID;
    while (any && index <= last && ni->tables[index].used)
        index++;
    if (index > last)
        return PTL_PT_FULL;
    if (ni->tables[index].used)
        return PTL_PT_IN_USE;
    *chosen = index;
    return PTL_OK;
}

static void psni_pt_open(psni_pt_t *pt, uint32_t index, unsigned options,
                         psni_eq_t *eq)
{
    *pt = (psni_pt_t){.used = true,
                      .enabled = true,
                      .options = options,
                      .index = index,
                      .eq = eq};
    psni_list_init(&pt->lists[PTL_PRIORITY_LIST]);
    psni_list_init(&pt->lists[PTL_OVERFLOW_LIST]);
    psni_headers_init(&pt->unexpected);
    if (eq != NULL)
        eq->source.object.users++;
}

int PtlPTAlloc(ptl_handle_ni_t ni_handle, unsigned int options,
               ptl_handle_eq_t eq_handle, ptl_pt_index_t pt_index_req,
               ptl_pt_index_t *pt_index)
{
    psni_ni_t *ni;
    psni_eq_t *eq = NULL;
    ptl_pt_index_t index;
    int rc = psni_enter(ni_handle, PSNI_KIND_NI, &ni);

    if (rc != PTL_OK)
        return rc;
    if (eq_handle != PTL_EQ_NONE)
        eq = psni_find(ni, eq_handle, PSNI_KIND_EQ);
    if ((options & ~KNOWN_OPTIONS) != 0 ||
        (eq == NULL && eq_handle != PTL_EQ_NONE))
        rc = PTL_ARG_INVALID;
    else if (eq == NULL && (options & PTL_PT_FLOWCTRL) != 0)
        rc = PTL_PT_EQ_NEEDED;
    else
        rc = psni_pt_choose(ni, pt_index_req, &index);
    if (rc == PTL_OK) {
        psni_pt_open(&ni->tables[index], index, options, eq);
        *pt_index = index;
    }
    psni_leave(ni);
    return rc;
}

void psni_pt_close(psni_ni_t *ni, psni_pt_t *pt)
{
    psc_list_for_each(header, &pt->unexpected.all, psni_header_t, link)
        psni_header_drop(header);
    psni_headers_close(&pt->unexpected);
    psni_list_close(&pt->lists[PTL_PRIORITY_LIST]);
    psni_list_close(&pt->lists[PTL_OVERFLOW_LIST]);
    if (pt->eq != NULL)
        pt->eq->source.object.users--;
    if (ni->late_eq == pt->eq)
        ni->late_eq = NULL;
    pt->used = false;
}

/* Finds an entry of the portal table, and takes the lock of the NI. */
static int psni_pt_enter(ptl_handle_ni_t ni_handle, ptl_pt_index_t pt_index,
                         psni_ni_t **ni_p, psni_pt_t **pt_p)
{
    int rc = psni_enter(ni_handle, PSNI_KIND_NI, ni_p);

    if (rc != PTL_OK)
        return rc;
    *pt_p = psni_pt_find(*ni_p, pt_index);
    if (*pt_p != NULL)
        return PTL_OK;
    psni_leave(*ni_p);
    return PTL_ARG_INVALID;
}

int PtlPTFree(ptl_handle_ni_t ni_handle, ptl_pt_index_t pt_index)
{
    psni_ni_t *ni;
    psni_pt_t *pt;
    int rc = psni_pt_enter(ni_handle, pt_index, &ni, &pt);

    if (rc != PTL_OK)
        return rc;
    if (pt->n_entries[0] + pt->n_entries[1] > 0)
        rc = PTL_PT_IN_USE;
    else
        psni_pt_close(ni, pt);
    psni_leave(ni);
    return rc;
}

static int psni_pt_switch(ptl_handle_ni_t ni_handle, ptl_pt_index_t pt_index,
                          bool on)
{
    psni_ni_t *ni;
    psni_pt_t *pt;
    int rc = psni_pt_enter(ni_handle, pt_index, &ni, &pt);

    if (rc != PTL_OK)
        return rc;
    pt->enabled = on;
    psni_leave(ni);
    return PTL_OK;
}

int PtlPTDisable(ptl_handle_ni_t ni_handle, ptl_pt_index_t pt_index)
{
    return psni_pt_switch(ni_handle, pt_index, false);
}

int PtlPTEnable(ptl_handle_ni_t ni_handle, ptl_pt_index_t pt_index)
{
    return psni_pt_switch(ni_handle, pt_index, true);
}
