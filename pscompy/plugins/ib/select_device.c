/* Selects the device, its port and the GID for a path. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "select_device.h"

bool ib_refuse(char *reason, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(reason, PSC_REASON_MAX, format, args);
    va_end(args);
    return false;
}

/* ---- the port ---- */

static bool ib_port_active(ib_device_t *device, int port)
{
    if (ibv_query_port(device->context, (uint8_t)port, &device->port_attr))
        return false;
    device->port = (uint8_t)port;
    return device->port_attr.state == IBV_PORT_ACTIVE;
}

static bool ib_port_choose(ib_device_t *device, const ib_choice_t *choice,
                           char *reason)
{
    const char *name = ibv_get_device_name(device->context->device);
    int first = choice->port ? choice->port : 1;
    int last = choice->port ? choice->port : device->attr.phys_port_cnt;

    if (choice->port > device->attr.phys_port_cnt)
        return ib_refuse(reason,
                         "%s has no port %d, the last is %d (PSP_IB_PORT, "
                         "PSP_IB_HCA)",
                         name, choice->port, device->attr.phys_port_cnt);
    for (int port = first; port <= last; port++) {
        if (ib_port_active(device, port))
            return true;
    }
    return ib_refuse(reason, "%s: no active port (port %d is %s)", name,
                     device->port, ibv_port_state_str(device->port_attr.state));
}

/* ---- the GID ---- */

/* Returns a rank by which GIDs are compared. A GID of RoCE v2 is above one of
 * v1, because it can be routed; within a version, global addresses are above
 * link-local ones, and IPv4 addresses highest. */
static int ib_gid_merit(const struct ibv_gid_entry *entry)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    const uint8_t *raw = entry->gid.raw;
    int merit = entry->gid_type == IBV_GID_TYPE_ROCE_V2 ? 4 : 0;

    if (memcmp(raw, mapped, sizeof(mapped)) == 0)
        return merit + 3;
    return merit + (raw[0] == 0xfe && (raw[1] & 0xc0) == 0x80 ? 1 : 2);
}

static bool ib_gid_best(ib_device_t *device, struct ibv_gid_entry *best_p)
{
    int best = -1;

    /* a path names its GID by 8 bits */
    for (int i = 0; i < device->port_attr.gid_tbl_len && i <= UINT8_MAX; i++) {
        struct ibv_gid_entry entry;

        if (ibv_query_gid_ex(device->context, device->port, (uint32_t)i, &entry,
                             0) != 0)
            continue;
        if (!ib_device_ethernet(device)) {
            /* on InfiniBand the first entry of the GID table is the port's own
             * GID */
            *best_p = entry;
            return true;
        }
        if (ib_gid_merit(&entry) > best) {
            best = ib_gid_merit(&entry);
            *best_p = entry;
        }
    }
    return best >= 0;
}

static bool ib_gid_choose(ib_device_t *device, const ib_choice_t *choice,
                          char *reason)
{
    struct ibv_gid_entry entry;
    bool found =
        choice->gid_index < 0
            ? ib_gid_best(device, &entry)
            : ibv_query_gid_ex(device->context, device->port,
                               (uint32_t)choice->gid_index, &entry, 0) == 0;

    if (!found && choice->gid_index >= 0)
        return ib_refuse(reason, "port %u has no GID %d (PSP_IB_GID_INDEX)",
                         device->port, choice->gid_index);
    if (!found)
        return ib_refuse(reason,
                         "port %u has no GID: give its network "
                         "interface an address",
                         device->port);
    device->gid = entry.gid;
    device->gid_index = (uint8_t)entry.gid_index;
    return true;
}

static bool ib_mtu_choose(ib_device_t *device, const ib_choice_t *choice,
                          char *reason)
{
    unsigned wanted = choice->mtu;
    enum ibv_mtu mtu = IBV_MTU_256;

    device->mtu = device->port_attr.active_mtu;
    if (wanted == 0)
        return true;
    while (128u << mtu < wanted)
        mtu++;
    if (mtu > device->port_attr.active_mtu)
        return ib_refuse(reason, "PSP_IB_PATH_MTU=%u: the port carries %u",
                         wanted, 128u << device->port_attr.active_mtu);
    device->mtu = mtu;
    return true;
}

/* ---- the device ---- */

static bool ib_device_try(ib_device_t *device, struct ibv_device *it,
                          const ib_choice_t *choice, char *reason)
{
    memset(device, 0, sizeof(*device));
    device->context = ibv_open_device(it);
    if (!device->context)
        return ib_refuse(reason, "%s cannot be opened: %s",
                         ibv_get_device_name(it), strerror(errno));
    if (ibv_query_device(device->context, &device->attr) != 0)
        ib_refuse(reason, "%s does not answer", ibv_get_device_name(it));
    else if (ib_port_choose(device, choice, reason) &&
             ib_gid_choose(device, choice, reason) &&
             ib_mtu_choose(device, choice, reason))
        return true;
    ibv_close_device(device->context);
    device->context = NULL;
    return false;
}

/* ---- paths ---- */

/* The state of a search through the ports that PSP_IB_HCA selects. */
typedef struct ib_search {
    const ib_choice_t *choice;
    char *reason;
    struct ibv_device **list;
    int n;
    /* the device and port of the path that is searched for */
    ib_device_t found;
    unsigned paths; /* number of usable ports that were found so far */
} ib_search_t;

static bool ib_search_try(ib_search_t *search, struct ibv_device *it, int port,
                          unsigned rail)
{
    ib_choice_t choice = *search->choice;
    ib_device_t device;

    choice.port = port;
    if (!ib_device_try(&device, it, &choice, search->reason))
        return false;
    device.rail = rail;
    if (search->paths++ == search->choice->path)
        search->found = device;
    else
        ibv_close_device(device.context);
    return true;
}

static void ib_search_first(ib_search_t *search)
{
    for (int i = 0; i < search->n; i++) {
        if (ib_search_try(search, search->list[i], search->choice->port, 0))
            return;
    }
}

static int ib_device_ports(struct ibv_device *it)
{
    struct ibv_context *context = ibv_open_device(it);
    struct ibv_device_attr attr = {.phys_port_cnt = 0};

    if (!context)
        return 0;
    if (ibv_query_device(context, &attr) != 0)
        attr.phys_port_cnt = 0;
    ibv_close_device(context);
    return attr.phys_port_cnt;
}

static void ib_search_all(ib_search_t *search)
{
    for (int i = 0; i < search->n; i++) {
        int ports = ib_device_ports(search->list[i]);

        for (int port = 1; port <= ports; port++)
            ib_search_try(search, search->list[i], port,
                          (unsigned)(i << 8 | port) & UINT16_MAX);
    }
}

/* Tries one entry of PSP_IB_HCA: the name of a device, which may be followed by
 * a port. */
static void ib_search_entry(ib_search_t *search, const char *text, int len,
                            unsigned rail)
{
    char name[IBV_SYSFS_NAME_MAX];
    int port = search->choice->port;
    char *colon;

    snprintf(name, sizeof(name), "%.*s", len, text);
    colon = strchr(name, ':');
    if (colon) {
        port = (int)strtol(colon + 1, NULL, 10);
        *colon = '\0';
    }
    for (int i = 0; i < search->n; i++) {
        if (strcmp(name, ibv_get_device_name(search->list[i])) == 0) {
            ib_search_try(search, search->list[i], port, rail);
            return;
        }
    }
    ib_refuse(search->reason, "no device %s (PSP_IB_HCA); the first is %s",
              name, ibv_get_device_name(search->list[0]));
}

/* Tries the devices that PSP_IB_HCA names. The position in the list is the
 * rail's id, even if other entries cannot be used. */
static void ib_search_named(ib_search_t *search)
{
    const char *at = search->choice->hca;

    for (unsigned rail = 0; *at && rail <= UINT16_MAX; rail++) {
        size_t len = strcspn(at, ",");

        ib_search_entry(search, at, (int)len, rail);
        at += len + (at[len] == ',');
    }
}

static bool ib_choice_named(const ib_choice_t *choice)
{
    return *choice->hca && strcmp(choice->hca, "all") != 0;
}

bool ib_device_select(ib_device_t *device, const ib_choice_t *choice,
                      char *reason)
{
    ib_search_t search = {.choice = choice, .reason = reason};

    search.list = ibv_get_device_list(&search.n);
    if (!search.list || search.n == 0)
        ib_refuse(reason, "no RDMA device%s",
                  search.list || errno == ENOSYS ? "" : " can be listed");
    else if (strcmp(choice->hca, "all") == 0)
        ib_search_all(&search);
    else if (*choice->hca)
        ib_search_named(&search);
    else
        ib_search_first(&search);
    if (search.list)
        ibv_free_device_list(search.list);
    *device = search.found;
    device->paths = search.paths;
    if (device->context && !ib_choice_named(choice))
        /* do not report devices that failed, because the user has named none */
        reason[0] = '\0';
    return device->context != NULL;
}
