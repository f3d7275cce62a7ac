/* Closing interfaces; control.h declares how they are opened. */
#ifndef PSCOMPY_CORE_IFACE_H
#define PSCOMPY_CORE_IFACE_H

#include "types/worker.h"

/* Close and free all interfaces when the worker ends. */
void psc_iface_close_all(psc_worker_t *worker);

#endif
