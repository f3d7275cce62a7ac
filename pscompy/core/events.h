/* Events of lanes and connections, and log lines, for the control thread, which
 * reads them by control.h. With the lock held. */
#ifndef PSCOMPY_CORE_EVENTS_H
#define PSCOMPY_CORE_EVENTS_H

#include "types/conn.h"

/* Make the control thread read its events. */
void psc_worker_control_signal(psc_worker_t *worker);
/* Count the interfaces that hold sent messages; change is +1 or -1. */
void psc_worker_count_holding(psc_worker_t *worker, int change);
void psc_worker_log(psc_worker_t *worker, int level, const char *line);

#endif
