/* Stops the progress thread; control.h declares its start. */
#ifndef PSCOMPY_CORE_PROGRESS_THREAD_H
#define PSCOMPY_CORE_PROGRESS_THREAD_H

#include "../types/worker.h"

void psc_thread_stop(psc_worker_t *worker);

#endif
