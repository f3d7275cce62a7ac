/* Requirements that a transport must meet before the core opens it. */
#pragma once

#include "pscompy/transport/transport.h"

/* Check a transport before it is opened: its ABI, and the mandatory calls.
 * Returns PSC_OK, or PSC_ERR_UNSUPPORTED with `reason` (PSC_REASON_MAX
 * bytes). */
psc_status_t psc_iface_check_ops(const psc_transport_ops_t *ops, char *reason);
/* Check an open transport: the calls that its capabilities need, and its
 * limits. */
psc_status_t psc_iface_check_attr(const psc_transport_ops_t *ops,
                                  const psc_iface_attr_t *attr, char *reason);
