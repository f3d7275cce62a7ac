/* The backlog of events, and unlinking of list entries; see channel.h. */
#include "channel.h"

#include <stdlib.h>

/* number of events for which the first allocation has room */
#define BACKLOG_ROOM 64u

void psptl_backlog_close(psptl_backlog_t *backlog)
{
    free(backlog->events);
}

static bool backlog_reserve(psptl_backlog_t *backlog)
{
    size_t room = backlog->room > 0 ? 2 * backlog->room : BACKLOG_ROOM;
    psptl_late_t *events;

    if (backlog->n < backlog->room)
        return true;
    events = realloc(backlog->events, room * sizeof(*events));
    if (!events)
        return false;
    backlog->events = events;
    backlog->room = room;
    return true;
}

/* Returns the operation (receive or buffer) whose list entry received a
 * message; NULL if the event reports no such message. */
static psptl_op_t *backlog_op(const psptl_late_t *late)
{
    return late->event.type == PTL_EVENT_PUT ||
                   late->event.type == PTL_EVENT_PUT_OVERFLOW
               ? late->event.user_ptr
               : NULL;
}

static void backlog_mark(const psptl_late_t *late, bool fetched)
{
    psptl_op_t *op = backlog_op(late);

    if (op)
        op->fetched = fetched;
}

bool psptl_backlog_fetch(psptl_device_t *device, psptl_entry_t *entry)
{
    psptl_backlog_t *backlog = &device->backlog;

    if (!entry->open)
        return true;
    while (backlog_reserve(backlog)) {
        psptl_late_t *late = &backlog->events[backlog->n];
        unsigned which;

        late->entry = entry;
        late->status =
            device->ni->PtlEQPoll(&entry->eq, 1, 0, &late->event, &which);
        if (late->status != PTL_OK && late->status != PTL_EQ_DROPPED)
            return true;
        backlog_mark(late, true);
        backlog->n++;
    }
    return false;
}

psptl_late_t psptl_backlog_take(psptl_device_t *device)
{
    psptl_backlog_t *backlog = &device->backlog;
    psptl_late_t late = backlog->events[backlog->head++];

    if (backlog->head == backlog->n)
        backlog->head = backlog->n = 0;
    backlog_mark(&late, false);
    return late;
}

/* ---- taking entries back ---- */

void psptl_op_unlink(psptl_device_t *device, psptl_op_t *op, ptl_handle_me_t me,
                     unsigned tries)
{
    int status = PTL_IN_USE;

    if (op->fetched || op->unlinked || me == PTL_INVALID_HANDLE)
        return;
    while (status == PTL_IN_USE && tries-- > 0)
        status = device->ni->PtlMEUnlink(me);
    op->unlinked = status == PTL_OK || (device->lossy && status != PTL_IN_USE);
}
