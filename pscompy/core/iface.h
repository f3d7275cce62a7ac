/* Interfaces: opening a transport for a worker is in control.h. */
#ifndef PSCOMPY_CORE_IFACE_H
#define PSCOMPY_CORE_IFACE_H

#include "types/worker.h"

/* Close and free all interfaces: the worker ends. */
void psc_iface_close_all(psc_worker_t *worker);

#endif
