/* The table of the driver, and its library: that of the system where system.c
 * compiles this a second time, the software NI otherwise. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "driver.h"
#ifndef PSPTL_SYSTEM
#include "../softni/software.h"
#endif

#ifdef PSPTL_SYSTEM

static psptl_provider_t psptl_library = {.name = "system"};

/* Without PtlFini: not every library starts a second time after it. */
#define PSPTL_FUNCTIONS(X)                                                     \
    X(PtlInit) X(PtlNIInit) X(PtlNIFini) X(PtlGetPhysId)           \
    X(PtlPTAlloc) X(PtlPTFree) X(PtlPTEnable)                                  \
    X(PtlEQAlloc) X(PtlEQFree) X(PtlEQPoll) X(PtlMDBind) X(PtlMDRelease)       \
    X(PtlMEAppend) X(PtlMEUnlink) X(PtlMESearch) X(PtlPut) X(PtlGet)

static bool psptl_resolve(void *library, const char *name, size_t at)
{
    void *function = dlsym(library, name);

    memcpy((char *)&psptl_library + at, &function, sizeof(function));
    return function;
}

/* Opened here and not linked, so that a machine without it can do without. */
static bool psptl_there(char *reason, size_t room)
{
    void *library = dlopen("libportals.so.4", RTLD_NOW | RTLD_GLOBAL);
    bool all = library;

#define PSPTL_RESOLVE(name)                                                    \
    all = all &&                                                               \
          psptl_resolve(library, #name, offsetof(psptl_provider_t, name));
    PSPTL_FUNCTIONS(PSPTL_RESOLVE)
#undef PSPTL_RESOLVE
    if (!all)
        snprintf(reason, room,
                 "%s (PSP_PORTALS_PROVIDER=software does without)", dlerror());
    return all;
}

static bool psptl_prepare(const psptl_settings_t *settings, char *reason,
                          size_t room)
{
    (void)settings;
    return psptl_there(reason, room);
}

#else

#define psptl_library psni_provider

static bool psptl_there(char *reason, size_t room)
{
    (void)reason;
    (void)room;
    return true;
}

static bool psptl_prepare(const psptl_settings_t *settings, char *reason,
                          size_t room)
{
    const psptl_mischief_t *mischief = &settings->mischief;
    psni_settings_t software = {
        .address = *settings->interface ? settings->interface : NULL,
        .max_msg_size = mischief->max_message,
        .max_eq_size = mischief->max_events,
        .fail_acks = mischief->fail_acks,
        .reorder_events = mischief->reorder_events,
        .disable_tables = mischief->disable_tables,
        .unlink_used = mischief->unlink_used,
        .drop = mischief->drop,
        .duplicate = mischief->duplicate,
        .reorder = mischief->reorder,
        .delay = mischief->delay,
        .delay_us = mischief->delay_us,
        .seed = mischief->seed,
    };

    if (psni_configure(&software) == PTL_OK)
        return true;
    snprintf(reason, room,
             "this machine has no address %s (PSP_PORTALS_INTERFACE)",
             settings->interface);
    return false;
}

#endif

const psptl_provider_t *psptl_provider_ready(const psptl_settings_t *settings,
                                             char *reason, size_t room)
{
    if (!psptl_prepare(settings, reason, room))
        return NULL;
    if (psptl_library.PtlInit() != PTL_OK) {
        snprintf(reason, room,
                 "the %s library does not start (PSP_PORTALS_PROVIDER)",
                 psptl_library.name);
        return NULL;
    }
    return &psptl_library;
}

const psptl_driver_t psptl_software_driver = {
#ifdef PSPTL_SYSTEM
    .name = "system",
#else
    .name = "software",
#endif
    .there = psptl_there,
    .device_open = psptl_device_open,
    .device_close = psptl_device_close,
    .device_poll = psptl_device_poll,
    .device_fds = psptl_device_fds,
    .device_arm = psptl_device_arm,
    .device_deadline = psptl_device_deadline,
    .device_counters = psptl_device_counters,
    .channel_counters = psptl_channel_counters,
    .channel_create = psptl_channel_create,
    .channel_place = psptl_channel_place,
    .channel_connect = psptl_channel_connect,
    .channel_idle = psptl_channel_idle,
    .channel_abort = psptl_channel_abort,
    .channel_part = psptl_channel_part,
    .channel_destroy = psptl_channel_destroy,
    .channel_ping = psptl_ping,
    .send_begin = psptl_send_begin,
    .send_end = psptl_send_end,
    .tag_flaw = psptl_tag_flaw,
    .tag_send = psptl_tag_send,
    .tag_put = psptl_bulk_tagged,
    .tag_post = psptl_tag_post,
    .tag_cancel = psptl_tag_cancel,
    .region_open = psptl_region_open,
    .region_revoke = psptl_region_revoke,
    .region_close = psptl_region_close,
    .bulk_start = psptl_bulk_start,
};
