/* The library in a process: its NIs (network interfaces), and the settings of
 * NIs that are opened later. Opening an interface that is open with the same
 * options returns the same NI. */
#include <stdlib.h>

#include "nic.h"

static struct {
    psc_lock_t lock;
    uint32_t generations[PSNI_NIS];
    psni_settings_t settings;
} library = {.settings.spin_us = 20};

int psni_configure(const psni_settings_t *settings)
{
    if (!psni_settings_sound(settings))
        return PTL_ARG_INVALID;
    psc_lock_acquire(&library.lock);
    library.settings = *settings;
    psc_lock_release(&library.lock);
    return PTL_OK;
}

int softni_fault_set(const char *name, uint64_t value)
{
    int rc;

    psc_lock_acquire(&library.lock);
    rc = psni_settings_set(&library.settings, name, value);
    psc_lock_release(&library.lock);
    return rc;
}

int PtlInit(void)
{
    psni_library_enter();
    return PTL_OK;
}

/* ---- NIs ---- */

static psni_ni_t *psni_library_shared(ptl_interface_t iface, unsigned options)
{
    for (unsigned i = 0; i < PSNI_NIS; i++) {
        psni_ni_t *ni = psni_library_ni(i);

        if (ni != NULL && ni->iface == iface && ni->options == options)
            return ni;
    }
    return NULL;
}

static psni_ni_t *psni_library_make(ptl_interface_t iface, unsigned options)
{
    uint32_t index = 0;
    psni_ni_t *ni;

    while (index < PSNI_NIS && psni_library_ni(index) != NULL)
        index++;
    ni = index == PSNI_NIS ? NULL : calloc(1, sizeof(*ni));
    if (ni == NULL)
        return NULL;
    ni->object = (psni_object_t){.ni = ni,
                                 .index = index,
                                 .generation = library.generations[index]++,
                                 .kind = PSNI_KIND_NI,
                                 .live = true};
    ni->iface = iface;
    ni->options = options;
    ni->settings = library.settings;
    return ni;
}

static int psni_library_open(ptl_interface_t iface, unsigned options,
                             ptl_pid_t pid, const ptl_ni_limits_t *desired,
                             psni_ni_t **ni_p)
{
    psni_ni_t *ni = psni_library_shared(iface, options);
    int rc;

    if (ni != NULL) {
        if (pid != PTL_PID_ANY && pid != ni->id.phys.pid)
            return PTL_ARG_INVALID;
        *ni_p = ni;
        return PTL_OK;
    }
    ni = psni_library_make(iface, options);
    if (ni == NULL)
        return PTL_NO_SPACE;
    rc = psni_interface_open(ni, pid, desired);
    if (rc != PTL_OK) {
        free(ni);
        return rc;
    }
    psni_library_register(ni->object.index, ni);
    *ni_p = ni;
    return PTL_OK;
}

static bool psni_options_sound(unsigned options)
{
    unsigned matching = options & (PTL_NI_MATCHING | PTL_NI_NO_MATCHING);

    return (options & ~matching) == PTL_NI_PHYSICAL &&
           (matching == PTL_NI_MATCHING || matching == PTL_NI_NO_MATCHING);
}

int PtlNIInit(ptl_interface_t iface, unsigned int options, ptl_pid_t pid,
              const ptl_ni_limits_t *desired, ptl_ni_limits_t *actual,
              ptl_handle_ni_t *ni_handle)
{
    psni_ni_t *ni;
    int rc;

    if (!psni_library_ready())
        return PTL_NO_INIT;
    if (!psni_options_sound(options) || ni_handle == NULL ||
        (pid != PTL_PID_ANY && (pid == 0 || pid > PSNI_PID_MAX)))
        return PTL_ARG_INVALID;
    psc_lock_acquire(&library.lock);
    rc = psni_library_open(iface, options, pid, desired, &ni);
    if (rc == PTL_OK) {
        ni->users++;
        if (actual != NULL)
            *actual = ni->limits;
        *ni_handle = psni_handle(&ni->object);
    }
    psc_lock_release(&library.lock);
    return rc;
}

/* Closes an NI. The caller holds the lock of the library, but not that of the
 * NI. */
static void psni_library_close(psni_ni_t *ni)
{
    psni_library_register(ni->object.index, NULL);
    psni_interface_close(ni);
    free(ni);
}

int PtlNIFini(ptl_handle_ni_t ni_handle)
{
    psni_ni_t *ni;
    int rc;

    psc_lock_acquire(&library.lock);
    rc = psni_enter(ni_handle, PSNI_KIND_NI, &ni);
    if (rc == PTL_OK) {
        psni_leave(ni);
        if (--ni->users == 0)
            psni_library_close(ni);
    }
    psc_lock_release(&library.lock);
    return rc;
}

void PtlFini(void)
{
    psc_lock_acquire(&library.lock);
    if (psni_library_leave())
        for (unsigned i = 0; i < PSNI_NIS; i++)
            if (psni_library_ni(i) != NULL)
                psni_library_close(psni_library_ni(i));
    psc_lock_release(&library.lock);
}
