/* The lock of a worker, and its mail: work that other threads leave for the
 * lock's holder. */
#pragma once

#include "types/worker.h"

/* Take the lock. Returns PSC_OK; PSC_ERR_NO_RESOURCE if PSC_FLAG_TRY was given
 * and the lock is held; PSC_ERR_FORKED in a forked child. */
psc_status_t psc_worker_enter(psc_worker_t *worker, uint32_t flags);
void psc_worker_leave(psc_worker_t *worker);
/* Release the lock, and return `status`, the result of the work that was done
 * with the lock held. */
static inline psc_status_t psc_worker_left(psc_worker_t *worker,
                                           psc_status_t status)
{
    psc_worker_leave(worker);
    return status;
}
/* Have the thread that holds the lock do the work that other threads have
 * queued (PSC_MAIL_OUTSIDE), or do it here if the lock is free. Never waits. */
void psc_worker_mail(psc_worker_t *worker);
/* Take the lock, evaluate `call`, and release the lock. The macro's value is
 * that of `call`, or the status of psc_worker_enter if the lock was not
 * taken. */
#define psc_worker_locked(worker, flags, call)                                 \
    ({                                                                         \
        psc_status_t entered_ = psc_worker_enter(worker, flags);               \
        entered_ == PSC_OK ? psc_worker_left(worker, call) : entered_;         \
    })
