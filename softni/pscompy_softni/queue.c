/* Event queues: creating and freeing them, posting and taking events. */
#include <stdlib.h>

#include "nic.h"

/* Additional places of each event queue, for events that report disabled portal
 * table entries. */
#define SPARE 64u

int PtlEQAlloc(ptl_handle_ni_t ni_handle, ptl_size_t count,
               ptl_handle_eq_t *eq_handle)
{
    psni_ni_t *ni;
    psni_eq_t *eq;
    int rc = psni_enter(ni_handle, PSNI_KIND_NI, &ni);

    if (rc != PTL_OK)
        return rc;
    eq = psni_pool_take(&ni->pools[PSNI_KIND_EQ]);
    rc = PTL_NO_SPACE;
    if (eq == NULL)
        goto out;
    if (ni->settings.max_events > 0 && count > ni->settings.max_events)
        count = ni->settings.max_events;
    eq->size = count == 0 ? 1 : count;
    eq->spare = SPARE;
    if (eq->size < SIZE_MAX / sizeof(ptl_event_t) - SPARE)
        eq->ring = calloc(eq->size + SPARE, sizeof(ptl_event_t));
    if (eq->ring == NULL) {
        psni_pool_give(&ni->pools[PSNI_KIND_EQ], eq);
        goto out;
    }
    *eq_handle = psni_handle(&eq->source.object);
    rc = PTL_OK;
out:
    psni_leave(ni);
    return rc;
}

void psni_eq_close(void *object)
{
    psni_eq_t *eq = object;
    psni_ni_t *ni = eq->source.object.ni;

    psni_doorbell_close(&eq->source.doorbell, ni);
    free(eq->ring);
    psni_pool_give(&ni->pools[PSNI_KIND_EQ], eq);
}

int PtlEQFree(ptl_handle_eq_t eq_handle)
{
    return psni_release(eq_handle, PSNI_KIND_EQ, psni_eq_close);
}

bool psni_eq_room(const psni_eq_t *eq, unsigned events)
{
    return eq->tail - eq->head + eq->promised + events <= eq->size;
}

/* Posts an event. If the queue has no room, the event is lost, and `dropped` is
 * set. Only PTL_EVENT_PT_DISABLED may use the spare places. */
void psni_eq_post(psni_eq_t *eq, const ptl_event_t *event)
{
    uint64_t room = eq->size;

    if (event->type == PTL_EVENT_PT_DISABLED)
        room += eq->spare;
    if (eq->tail - eq->head >= room)
        eq->dropped = true;
    else
        eq->ring[eq->tail++ % (eq->size + eq->spare)] = *event;
    psni_doorbell_ring(&eq->source.doorbell, eq->source.object.ni);
}

int psni_eq_take(psni_eq_t *eq, ptl_event_t *event)
{
    if (eq->head == eq->tail)
        return PTL_EQ_EMPTY;
    *event = eq->ring[eq->head++ % (eq->size + eq->spare)];
    if (!eq->dropped)
        return PTL_OK;
    eq->dropped = false;
    return PTL_EQ_DROPPED;
}

int softni_eq_fd(ptl_handle_eq_t eq_handle, int *fd)
{
    psni_eq_t *eq;
    int rc = psni_enter(eq_handle, PSNI_KIND_EQ, &eq);

    if (rc != PTL_OK)
        return rc;
    rc = psni_doorbell_open(&eq->source.doorbell);
    if (rc == PTL_OK)
        *fd = eq->source.doorbell.epoll_fd;
    psni_leave(eq->source.object.ni);
    return rc;
}
