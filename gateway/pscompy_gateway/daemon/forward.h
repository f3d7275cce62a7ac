/* Forwards packets. */
#pragma once

#include "hub.h"

void hub_forward(gw_hub_t *hub, hub_fabric_t *fabric, psc_message_t *message);
/* Called when a request of hub_forward has completed. */
void hub_finished(gw_hub_t *hub, psc_request_t *request);

/* CDEF BEGIN */
/* Forwards the packets of a fabric until gw_hub_stop. */
void gw_hub_serve(gw_hub_t *hub, uint32_t fabric);
/* CDEF END */
