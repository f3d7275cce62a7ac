/* Declares the function that stops the progress thread; the function that
 * starts it is in control.h. */
#pragma once

#include "../types/worker.h"

void psc_thread_stop(psc_worker_t *worker);
