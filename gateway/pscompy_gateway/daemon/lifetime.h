/* Creates, stops and destroys a hub. */
#pragma once

#include "hub.h"

/* CDEF BEGIN */
/* bound, share: most bytes held in all, and for one connection. */
gw_hub_t *gw_hub_create(uintptr_t api, uint64_t bound, uint64_t share);
/* Call it after every thread has left gw_hub_serve, while the workers exist. */
void gw_hub_destroy(gw_hub_t *hub);
/* Returns the number of a fabric's worker, or a status. */
int gw_hub_fabric(gw_hub_t *hub, uintptr_t worker);
void gw_hub_stop(gw_hub_t *hub);
/* CDEF END */
