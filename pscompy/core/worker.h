/* The lock of a worker, and the mail that is left for its holder. */
#ifndef PSCOMPY_CORE_WORKER_H
#define PSCOMPY_CORE_WORKER_H

#include "types/worker.h"

/* Take the lock, unless PSC_FLAG_TRY and it is held, or the process forked:
 * PSC_OK, PSC_ERR_NO_RESOURCE, PSC_ERR_FORKED. */
psc_status_t psc_worker_enter(psc_worker_t *worker, uint32_t flags);
void psc_worker_leave(psc_worker_t *worker);
/* Without waiting for the lock: have its holder read the mail. */
void psc_worker_mail(psc_worker_t *worker);

#endif
