/* Unlinking of list entries, and the backlog: events that were taken from the
 * queues before their turn.
 *
 * An entry that a message has used up leaves its list by itself. Some libraries
 * return PTL_OK from PtlMEUnlink for it, although its event is still queued;
 * also, its handle may name another entry by then. So psptl_backlog_fetch
 * empties the queue into the backlog before entries are unlinked, and again
 * after that. An entry has been given back unused if PtlMEUnlink returned
 * PTL_OK and no event of the entry is in the backlog. Nothing is appended
 * between the two fetches, because no event is handled between them. Once
 * events were lost, an entry that the interface does not know any more counts
 * as given back, too. */
#pragma once

#include "driver.h"

/* Moves all events of the entry's event queue to the backlog. Returns false if
 * memory is short. */
bool psptl_backlog_fetch(psptl_device_t *device, psptl_entry_t *entry);
/* Removes the oldest event of the backlog, which must not be empty, and returns
 * it. */
psptl_late_t psptl_backlog_take(psptl_device_t *device);
void psptl_backlog_close(psptl_backlog_t *backlog);
/* Unlinks `me`, the list entry of an operation, in at most `tries` attempts.
 * The caller calls psptl_backlog_fetch before and after. */
void psptl_op_unlink(psptl_device_t *device, psptl_op_t *op, ptl_handle_me_t me,
                     unsigned tries);

static inline bool psptl_backlog_empty(const psptl_device_t *device)
{
    return device->backlog.n == 0;
}

/* To be called after psptl_op_unlink and a psptl_backlog_fetch. Returns true if
 * no message has used the list entry of the operation, and none will. */
static inline bool psptl_op_back(const psptl_op_t *op)
{
    return op->unlinked && !op->fetched;
}
