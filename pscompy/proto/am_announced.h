/* Active messages that are announced by RTS. They wait to be fetched while
 * messages that have not been polled or received fill the bound on memory
 * (psc_budget_t). */
#pragma once

#include "am.h"
#include "rndv.h"

/* Keep the record of an announced message as an unexpected one of the context
 * PSC_CONTEXT_AM, and fetch what there is room for (psc_budget_t). */
psc_status_t psc_am_announced(psc_unexp_t *unexp);
psc_message_t *psc_am_poll(psc_worker_t *worker);
void psc_am_message_free(psc_message_t *message);
void psc_am_worker_destroy(psc_worker_t *worker);
