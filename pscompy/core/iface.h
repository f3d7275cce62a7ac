/* Closing interfaces; control.h declares how they are opened. */
#pragma once

#include "types/worker.h"

/* Close and free all interfaces when the worker ends. */
void psc_iface_close_all(psc_worker_t *worker);
