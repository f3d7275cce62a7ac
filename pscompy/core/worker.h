/* A worker: its lock, its interfaces, and the descriptors that wake others. */
#pragma once

#include <stdint.h>

#include "types/worker.h"
#include "pscompy/transport/transport.h"

/* ---- worker.c ---- */

/* The lock of a worker, and its mail: work that other threads leave for the
 * lock's holder. */

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

/* ---- descriptor.c ---- */

/* Descriptors to sleep on: eventfds, and epoll sets. */

/* Make an eventfd readable; psc_descriptor_clear makes it unreadable again. */
void psc_descriptor_signal(int fd);
void psc_descriptor_clear(int fd);
/* Add a descriptor to an epoll set. ifaces: the bits of the interfaces that the
 * descriptor belongs to, which epoll_wait returns. Returns 0, or -1 with
 * errno. */
int psc_descriptor_watch(int set, int fd, uint32_t events, uint32_t ifaces);

/* ---- iface.c ---- */

/* Closing interfaces; control.h declares how they are opened. */

/* Close and free all interfaces when the worker ends. */
void psc_iface_close_all(psc_worker_t *worker);

/* ---- iface_check.c ---- */

/* Requirements that a transport must meet before the core opens it. */

/* Check a transport before it is opened: its ABI, and the mandatory calls.
 * Returns PSC_OK, or PSC_ERR_UNSUPPORTED with `reason` (PSC_REASON_MAX
 * bytes). */
psc_status_t psc_iface_check_ops(const psc_transport_ops_t *ops, char *reason);
/* Check an open transport: the calls that its capabilities need, and its
 * limits. */
psc_status_t psc_iface_check_attr(const psc_transport_ops_t *ops,
                                  const psc_iface_attr_t *attr, char *reason);
