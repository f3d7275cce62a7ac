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

int PtlCTGet(ptl_handle_ct_t ct_handle, ptl_ct_event_t *event)
{
    psni_ct_t *ct;
    int rc = psni_enter(ct_handle, PSNI_KIND_CT, &ct);

    if (rc != PTL_OK)
        return rc;
    psni_progress(ct->object.ni);
    *event = ct->value;
    psni_leave(ct->object.ni);
    return PTL_OK;
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

int PtlCTWait(ptl_handle_ct_t ct_handle, ptl_size_t test,
              ptl_ct_event_t *event)
{
    unsigned which;

    return PtlCTPoll(&ct_handle, &test, 1, PTL_TIME_FOREVER, event, &which);
}

/* A failure ends the wait as well as success does. */
static bool psni_ct_reached(psni_ct_t *const *cts, const ptl_size_t *tests,
                            unsigned n, ptl_ct_event_t *event, unsigned *which)
{
    for (unsigned i = 0; i < n; i++)
        if (cts[i]->value.success >= tests[i] || cts[i]->value.failure > 0) {
            *event = cts[i]->value;
            *which = i;
            return true;
        }
    return false;
}

static bool psni_ct_pass(psni_ct_t *const *cts, const ptl_size_t *tests,
                         unsigned n, ptl_ct_event_t *event, unsigned *which)
{
    bool reached = psni_ct_reached(cts, tests, n, event, which);

    for (unsigned i = 0; !reached && i < PSNI_PASSES; i++) {
        if (!psni_progress(cts[0]->object.ni))
            break;
        reached = psni_ct_reached(cts, tests, n, event, which);
    }
    return reached;
}

static int psni_ct_await(psni_ct_t *const *cts, const ptl_size_t *tests,
                         unsigned n, ptl_time_t timeout, ptl_ct_event_t *event,
                         unsigned *which)
{
    psni_patience_t patience = psni_patience(cts[0]->object.ni, timeout);
    psni_bell_t *bells[PSNI_PIECES];
    int rc;

    while (!psni_ct_pass(cts, tests, n, event, which)) {
        if (psni_patience_over(&patience))
            return PTL_CT_NONE_REACHED;
        if (psni_patience_spin(&patience))
            continue;
        for (unsigned i = 0; i < n; i++)
            bells[i] = &cts[i]->bell;
        rc = psni_patience_sleep(&patience, bells, n);
        if (rc != PTL_OK)
            return rc;
    }
    return PTL_OK;
}

int PtlCTPoll(const ptl_handle_ct_t *ct_handles, const ptl_size_t *tests,
              unsigned int size, ptl_time_t timeout, ptl_ct_event_t *event,
              unsigned int *which)
{
    psni_ct_t *cts[PSNI_PIECES];
    int rc = PTL_ARG_INVALID;

    if (size == 0 || size > PSNI_PIECES || event == NULL || which == NULL)
        return rc;
    rc = psni_enter(ct_handles[0], PSNI_KIND_CT, &cts[0]);
    if (rc != PTL_OK)
        return rc;
    for (unsigned i = 1; i < size; i++) {
        cts[i] = psni_find(cts[0]->object.ni, ct_handles[i], PSNI_KIND_CT);
        if (cts[i] == NULL)
            rc = PTL_ARG_INVALID;
    }
    if (rc == PTL_OK)
        rc = psni_ct_await(cts, tests, size, timeout, event, which);
    psni_leave(cts[0]->object.ni);
    return rc;
}
