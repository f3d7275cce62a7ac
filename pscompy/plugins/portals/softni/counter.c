/* Counting events: how many operations, or bytes, have ended. */
#include "nic.h"

int PtlCTAlloc(ptl_handle_ni_t ni_handle, ptl_handle_ct_t *ct_handle)
{
    psni_ni_t *ni;
    psni_ct_t *ct;
    int rc = psni_enter(ni_handle, PSNI_KIND_NI, &ni);

    if (rc != PTL_OK)
        return rc;
    ct = psni_pool_take(&ni->pools[PSNI_KIND_CT]);
    if (ct != NULL)
        *ct_handle = psni_handle(&ct->object);
    psni_leave(ni);
    return ct == NULL ? PTL_NO_SPACE : PTL_OK;
}

void psni_ct_close(psni_ct_t *ct)
{
    psni_bell_close(&ct->bell, ct->object.ni);
    psni_pool_give(&ct->object.ni->pools[PSNI_KIND_CT], ct);
}

int PtlCTFree(ptl_handle_ct_t ct_handle)
{
    psni_ct_t *ct;
    psni_ni_t *ni;
    int rc = psni_enter(ct_handle, PSNI_KIND_CT, &ct);

    if (rc != PTL_OK)
        return rc;
    ni = ct->object.ni;
    if (ct->users > 0)
        rc = PTL_IN_USE;
    else
        psni_ct_close(ct);
    psni_leave(ni);
    return rc;
}

void psni_ct_count(psni_ct_t *ct, bool failed, uint64_t amount)
{
    if (failed)
        ct->value.failure++;
    else
        ct->value.success += amount;
    psni_bell_ring(&ct->bell, ct->object.ni);
}

int PtlCTSet(ptl_handle_ct_t ct_handle, ptl_ct_event_t new_ct)
{
    psni_ct_t *ct;
    int rc = psni_enter(ct_handle, PSNI_KIND_CT, &ct);

    if (rc != PTL_OK)
        return rc;
    ct->value = new_ct;
    psni_bell_ring(&ct->bell, ct->object.ni);
    psni_leave(ct->object.ni);
    return PTL_OK;
}

int PtlCTInc(ptl_handle_ct_t ct_handle, ptl_ct_event_t increment)
{
    psni_ct_t *ct;
    int rc = psni_enter(ct_handle, PSNI_KIND_CT, &ct);

    if (rc != PTL_OK)
        return rc;
    ct->value.success += increment.success;
    ct->value.failure += increment.failure;
    psni_bell_ring(&ct->bell, ct->object.ni);
    psni_leave(ct->object.ni);
    return PTL_OK;
}
