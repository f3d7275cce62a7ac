/* Counting events: counters of completed operations or of their bytes. */
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
        *ct_handle = psni_handle(&ct->source.object);
    psni_leave(ni);
    return ct == NULL ? PTL_NO_SPACE : PTL_OK;
}

void psni_ct_close(void *object)
{
    psni_ct_t *ct = object;
    psni_ni_t *ni = ct->source.object.ni;

    psni_doorbell_close(&ct->source.doorbell, ni);
    psni_pool_give(&ni->pools[PSNI_KIND_CT], ct);
}

int PtlCTFree(ptl_handle_ct_t ct_handle)
{
    return psni_release(ct_handle, PSNI_KIND_CT, psni_ct_close);
}

static void psni_ct_set(psni_ct_t *ct, ptl_size_t success, ptl_size_t failure)
{
    ct->value = (ptl_ct_event_t){.success = success, .failure = failure};
    psni_doorbell_ring(&ct->source.doorbell, ct->source.object.ni);
}

void psni_ct_count(psni_ct_t *ct, bool failed, uint64_t amount)
{
    psni_ct_set(ct, ct->value.success + (failed ? 0 : amount),
                ct->value.failure + failed);
}

int PtlCTSet(ptl_handle_ct_t ct_handle, ptl_ct_event_t new_ct)
{
    psni_ct_t *ct;
    int rc = psni_enter(ct_handle, PSNI_KIND_CT, &ct);

    if (rc != PTL_OK)
        return rc;
    psni_ct_set(ct, new_ct.success, new_ct.failure);
    psni_leave(ct->source.object.ni);
    return PTL_OK;
}

int PtlCTInc(ptl_handle_ct_t ct_handle, ptl_ct_event_t increment)
{
    psni_ct_t *ct;
    int rc = psni_enter(ct_handle, PSNI_KIND_CT, &ct);

    if (rc != PTL_OK)
        return rc;
    psni_ct_set(ct, ct->value.success + increment.success,
                ct->value.failure + increment.failure);
    psni_leave(ct->source.object.ni);
    return PTL_OK;
}
