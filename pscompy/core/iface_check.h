/* What a transport must have for the core to open it. */
#ifndef PSCOMPY_CORE_IFACE_CHECK_H
#define PSCOMPY_CORE_IFACE_CHECK_H

#include "pscompy/transport/transport.h"

/* Before it is opened: its ABI, and the calls that every transport has. Returns
 * PSC_OK, or UNSUPPORTED with `reason` (PSC_REASON_MAX bytes). */
psc_status_t psc_iface_check_ops(const psc_transport_ops_t *ops, char *reason);
/* Once it is open: the calls that its capabilities promise, and its limits. */
psc_status_t psc_iface_check_attr(const psc_transport_ops_t *ops,
                                  const psc_iface_attr_t *attr, char *reason);

#endif
