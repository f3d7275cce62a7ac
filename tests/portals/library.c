/* A Portals 4 library for tests, made of the software NI: this file replaces
 * the NI's library.c. All processes use a fixed key, because the specification
 * has no cookies. PtlNIInit finds no interface if NO_PORTALS_NIC is set. */
#define PtlInit real_PtlInit
#define PtlNIInit real_PtlNIInit
#include "softni/pscompy_softni/library.c"
#undef PtlInit
#undef PtlNIInit

int PtlInit(void);
__typeof__(real_PtlNIInit) PtlNIInit;

int PtlInit(void)
{
    static const psni_settings_t settings = {.has_key = true, .key = {1}};

    psni_configure(&settings);
    return real_PtlInit();
}

int PtlNIInit(ptl_interface_t iface, unsigned int options, ptl_pid_t pid,
              const ptl_ni_limits_t *desired, ptl_ni_limits_t *actual,
              ptl_handle_ni_t *ni_handle)
{
    if (getenv("NO_PORTALS_NIC"))
        return PTL_NO_SPACE;
    return real_PtlNIInit(iface, options, pid, desired, actual, ni_handle);
}
