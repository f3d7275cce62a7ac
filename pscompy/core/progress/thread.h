/* Stops the progress thread; control.h declares its start. */
#pragma once

#include "../types/worker.h"

void psc_thread_stop(psc_worker_t *worker);
