/* The library of a process: its NIs, the settings of the next one, and the
 * table through which everything is reached. An NI is opened once per
 * interface and options; whoever opens the same again shares it. */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "nic.h"

static struct {
    psc_lock_t lock;
    atomic_uint users;
    _Atomic(psni_ni_t *) nis[PSNI_NIS];
    uint32_t generations[PSNI_NIS];
    psni_settings_t settings;
    char address[INET_ADDRSTRLEN];
} library = {.settings.spin_us = 20};

bool psni_library_ready(void)
{
    return atomic_load_explicit(&library.users, memory_order_acquire) > 0;
}

psni_ni_t *psni_library_ni(uint32_t index)
{
    return atomic_load_explicit(&library.nis[index], memory_order_acquire);
}

static bool psni_settings_sound(const psni_settings_t *settings)
{
    const unsigned rates[] = {settings->fail_acks,     settings->reorder_events,
                              settings->disable_tables, settings->drop,
                              settings->duplicate,     settings->reorder,
                              settings->delay};
    struct in_addr address;

    for (unsigned i = 0; i < sizeof(rates) / sizeof(rates[0]); i++)
        if (rates[i] > PSNI_MILLION)
            return false;
    return settings->address == NULL ||
           inet_pton(AF_INET, settings->address, &address) == 1;
}

int psni_configure(const psni_settings_t *settings)
{
    if (!psni_settings_sound(settings))
        return PTL_ARG_INVALID;
    psc_lock_acquire(&library.lock);
    library.settings = *settings;
    library.settings.address = NULL;
    library.address[0] = '\0';
    if (settings->address != NULL)
        strncpy(library.address, settings->address,
                sizeof(library.address) - 1);
    psc_lock_release(&library.lock);
    return PTL_OK;
}

static int psni_init(void)
{
    atomic_fetch_add(&library.users, 1);
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
    memcpy(ni->address, library.address, sizeof(ni->address));
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
    atomic_store_explicit(&library.nis[ni->object.index], ni,
                          memory_order_release);
    *ni_p = ni;
    return PTL_OK;
}

static bool psni_options_sound(unsigned options)
{
    unsigned matching = options & (PTL_NI_MATCHING | PTL_NI_NO_MATCHING);

    return (options & ~matching) == PTL_NI_PHYSICAL &&
           (matching == PTL_NI_MATCHING || matching == PTL_NI_NO_MATCHING);
}

int psni_ni_init(ptl_interface_t iface, unsigned int options, ptl_pid_t pid,
                 const ptl_ni_limits_t *desired, ptl_ni_limits_t *actual,
                 ptl_handle_ni_t *ni_handle)
{
    psni_ni_t *ni;
    int rc;

    if (!psni_library_ready())
        return PTL_NO_INIT;
    if (!psni_options_sound(options) || ni_handle == NULL ||
        (pid != PTL_PID_ANY && (pid == 0 || pid > PTL_PID_MAX)))
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

/* The library's lock is taken, the NI's not. */
static void psni_library_close(psni_ni_t *ni)
{
    atomic_store_explicit(&library.nis[ni->object.index], NULL,
                          memory_order_release);
    psni_interface_close(ni);
    free(ni);
}

int psni_ni_fini(ptl_handle_ni_t ni_handle)
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

static void psni_fini(void)
{
    psc_lock_acquire(&library.lock);
    if (psni_library_ready() && atomic_fetch_sub(&library.users, 1) == 1)
        for (unsigned i = 0; i < PSNI_NIS; i++)
            if (psni_library_ni(i) != NULL)
                psni_library_close(psni_library_ni(i));
    psc_lock_release(&library.lock);
}

const psptl_provider_t psni_provider = {
    .name = "software",
    .PtlInit = psni_init,
    .PtlFini = psni_fini,
    .PtlNIInit = psni_ni_init,
    .PtlNIFini = psni_ni_fini,
    .PtlNIStatus = psni_ni_status,
    .PtlNIHandle = psni_ni_handle,
    .PtlHandleIsEqual = psni_handle_is_equal,
    .PtlGetUid = psni_get_uid,
    .PtlGetId = psni_get_id,
    .PtlGetPhysId = psni_get_id,
    .PtlPTAlloc = psni_pt_alloc,
    .PtlPTFree = psni_pt_free,
    .PtlPTDisable = psni_pt_user_disable,
    .PtlPTEnable = psni_pt_user_enable,
    .PtlEQAlloc = psni_eq_alloc,
    .PtlEQFree = psni_eq_free,
    .PtlEQGet = psni_eq_get,
    .PtlEQWait = psni_eq_wait,
    .PtlEQPoll = psni_eq_poll,
    .PtlCTAlloc = psni_ct_alloc,
    .PtlCTFree = psni_ct_free,
    .PtlCTGet = psni_ct_get,
    .PtlCTWait = psni_ct_wait,
    .PtlCTPoll = psni_ct_poll,
    .PtlCTSet = psni_ct_set,
    .PtlCTInc = psni_ct_inc,
    .PtlMDBind = psni_md_bind,
    .PtlMDRelease = psni_md_release,
    .PtlLEAppend = psni_le_append,
    .PtlLEUnlink = psni_le_unlink,
    .PtlLESearch = psni_le_search,
    .PtlMEAppend = psni_me_append,
    .PtlMEUnlink = psni_me_unlink,
    .PtlMESearch = psni_me_search,
    .PtlPut = psni_put,
    .PtlGet = psni_get,
    .tells_true = true,
    .eq_fd = psni_eq_fd,
    .eq_arm = psni_eq_arm,
    .ni_cookie = psni_ni_cookie,
    .ni_admit = psni_ni_admit,
};
