/* A library of Portals 4 for tests, made of the software NI: what it must
 * export, see psptl.c. It has no interface where NO_PORTALS_NIC is set. */
#include <stdlib.h>

#include "pscompy/plugins/portals/softni/software.h"

/* Processes know a common key, since the cookies are no part of the
 * specification. */
int PtlInit(void)
{
    static const psni_settings_t settings = {.has_key = true, .key = {1}};

    psni_configure(&settings);
    return psni_provider.PtlInit();
}

int PtlNIInit(ptl_interface_t iface, unsigned int options, ptl_pid_t pid,
              const ptl_ni_limits_t *desired, ptl_ni_limits_t *actual,
              ptl_handle_ni_t *ni_handle)
{
    if (getenv("NO_PORTALS_NIC"))
        return PTL_NO_SPACE;
    return psni_provider.PtlNIInit(iface, options, pid, desired, actual,
                                   ni_handle);
}
