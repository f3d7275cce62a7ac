/* Events of lanes and connections, and lines of the log, for the control
 * thread, which reads them by control.h. With the lock held. */
#ifndef PSCOMPY_CORE_EVENTS_H
#define PSCOMPY_CORE_EVENTS_H

#include "types/conn.h"

/* Tell the control thread to look at its events. */
void psc_worker_control_signal(psc_worker_t *worker);
/* One more interface, or one less, holds bytes that have been sent. */
void psc_worker_count_holding(psc_worker_t *worker, int change);
void psc_worker_log(psc_worker_t *worker, int level, const char *line);

#endif
