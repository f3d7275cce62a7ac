/* Choosing device, port and GID, and opening what all connections share. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "driver.h"

/* Where a reason goes; refuse() is always false. */
typedef struct ib_reason {
    char *text;
    size_t room;
} ib_reason_t;

static bool ib_refuse(const ib_reason_t *reason, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static bool ib_refuse(const ib_reason_t *reason, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(reason->text, reason->room, format, args);
    va_end(args);
    return false;
}

void ib_device_name(const ib_device_t *device, char *name, size_t room)
{
    snprintf(name, room, "%s/%u", ibv_get_device_name(device->context->device),
             device->port);
}

bool ib_device_ethernet(const ib_device_t *device)
{
    return device->port_attr.link_layer == IBV_LINK_LAYER_ETHERNET;
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
                           const ib_reason_t *reason)
{
    const char *name = ibv_get_device_name(device->context->device);
    int first = choice->port ? choice->port : 1;
    int last = choice->port ? choice->port : device->attr.phys_port_cnt;

    if (choice->port > device->attr.phys_port_cnt)
        return ib_refuse(reason, "%s has %d ports, PSP_IB_PORT is %d", name,
                         device->attr.phys_port_cnt, choice->port);
    for (int port = first; port <= last; port++) {
        if (ib_port_active(device, port))
            return true;
    }
    return ib_refuse(reason, "%s: no active port (port %d is %s)", name,
                     device->port,
                     ibv_port_state_str(device->port_attr.state));
}

/* ---- the GID ---- */

/* RoCE v2 is routed and prefers addresses that others know too. */
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

    for (int i = 0; i < device->port_attr.gid_tbl_len; i++) {
        struct ibv_gid_entry entry;

        if (ibv_query_gid_ex(device->context, device->port, (uint32_t)i,
                             &entry, 0) != 0)
            continue;
        if (!ib_device_ethernet(device)) {
            *best_p = entry; /* the first is the port's own */
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
                          const ib_reason_t *reason)
{
    struct ibv_gid_entry entry;
    bool found = choice->gid_index < 0
                     ? ib_gid_best(device, &entry)
                     : ibv_query_gid_ex(device->context, device->port,
                                        (uint32_t)choice->gid_index, &entry,
                                        0) == 0;

    if (!found && choice->gid_index >= 0)
        return ib_refuse(reason, "port %u has no GID %d (PSP_IB_GID_INDEX)",
                         device->port, choice->gid_index);
    if (!found)
        return ib_refuse(reason, "port %u has no GID: give its network "
                         "interface an address", device->port);
    device->gid = entry.gid;
    device->gid_index = (uint8_t)entry.gid_index;
    return true;
}

static bool ib_mtu_choose(ib_device_t *device, const ib_choice_t *choice,
                          const ib_reason_t *reason)
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
                          const ib_choice_t *choice, const ib_reason_t *reason)
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

static bool ib_device_choose(ib_device_t *device, const ib_choice_t *choice,
                             const ib_reason_t *reason)
{
    int n = 0;
    struct ibv_device **list = ibv_get_device_list(&n);
    bool found = false, named = false;

    if (!list || n == 0)
        ib_refuse(reason, "no RDMA device%s",
                  list || errno == ENOSYS ? "" : " can be listed");
    for (int i = 0; list && i < n && !found; i++) {
        if (*choice->hca &&
            strcmp(choice->hca, ibv_get_device_name(list[i])) != 0)
            continue;
        named = true;
        found = ib_device_try(device, list[i], choice, reason);
    }
    if (n > 0 && !named)
        ib_refuse(reason, "no device %s (PSP_IB_HCA); the first is %s",
                  choice->hca, ibv_get_device_name(list[0]));
    if (list)
        ibv_free_device_list(list);
    return found;
}

static bool ib_nonblocking(int fd)
{
    int flags = fcntl(fd, F_GETFL);

    return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

static bool ib_device_share(ib_device_t *device, const ib_choice_t *choice,
                            const ib_reason_t *reason)
{
    struct ibv_srq_init_attr srq = {
        .attr = {.max_wr = choice->recvs, .max_sge = 1},
    };

    device->pd = ibv_alloc_pd(device->context);
    device->channel = ibv_create_comp_channel(device->context);
    if (!device->pd || !device->channel)
        return ib_refuse(reason, "no protection domain: %s", strerror(errno));
    device->comps = choice->comps;
    device->send_cq = ibv_create_cq(device->context, (int)choice->comps, NULL,
                                    device->channel, 0);
    device->recv_cq = ibv_create_cq(device->context, (int)choice->recvs, NULL,
                                    device->channel, 0);
    if (!device->send_cq || !device->recv_cq)
        return ib_refuse(reason,
                         "no completion queue of %u and %u: %s "
                         "(PSP_IB_COMPQ_SIZE, PSP_IB_SRQ_SIZE)",
                         choice->comps, choice->recvs, strerror(errno));
    device->srq = ibv_create_srq(device->pd, &srq);
    if (!device->srq)
        return ib_refuse(reason,
                         "no shared receive queue of %u: %s (PSP_IB_SRQ_SIZE)",
                         choice->recvs, strerror(errno));
    return ib_nonblocking(device->channel->fd) &&
           ib_nonblocking(device->context->async_fd);
}

bool ib_device_open(ib_device_t *device, const ib_choice_t *choice,
                    char *reason, size_t room)
{
    ib_reason_t to = {reason, room};

    if (!ib_device_choose(device, choice, &to))
        return false;
    if (ib_device_share(device, choice, &to))
        return true;
    ib_device_close(device);
    return false;
}

void ib_device_close(ib_device_t *device)
{
    if (!device->context)
        return;
    if (device->srq)
        ibv_destroy_srq(device->srq);
    if (device->recv_cq)
        ibv_destroy_cq(device->recv_cq);
    if (device->send_cq)
        ibv_destroy_cq(device->send_cq);
    if (device->channel)
        ibv_destroy_comp_channel(device->channel);
    if (device->pd)
        ibv_dealloc_pd(device->pd);
    ibv_close_device(device->context);
    memset(device, 0, sizeof(*device));
}

bool ib_device_reserve(ib_device_t *device, unsigned comps)
{
    if (comps <= device->comps)
        return true;
    comps += comps / 2;
    if (comps > (unsigned)device->attr.max_cqe)
        comps = (unsigned)device->attr.max_cqe;
    if (ibv_resize_cq(device->send_cq, (int)comps) != 0)
        return false;
    device->comps = comps;
    return true;
}

/* ---- memory ---- */

bool ib_pool_open(ib_pool_t *pool, ib_device_t *device, size_t size,
                  unsigned n, int access)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t mapped = (size * n + page - 1) / page * page;
    void *base = mmap(NULL, mapped, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    *pool = (ib_pool_t){.size = size, .n = n, .n_free = n};
    if (base == MAP_FAILED)
        return false;
    pool->base = base;
    pool->mapped = mapped;
    madvise(base, mapped, MADV_DONTFORK);
    pool->free = calloc(n, sizeof(*pool->free));
    pool->mr = ibv_reg_mr(device->pd, base, mapped,
                          IBV_ACCESS_LOCAL_WRITE | access);
    if (!pool->free || !pool->mr) {
        ib_pool_close(pool);
        return false;
    }
    for (unsigned i = 0; i < n; i++)
        pool->free[i] = n - 1 - i;
    return true;
}

void ib_pool_close(ib_pool_t *pool)
{
    int error = errno;

    if (pool->mr)
        ibv_dereg_mr(pool->mr);
    if (pool->base)
        munmap(pool->base, pool->mapped);
    free(pool->free);
    *pool = (ib_pool_t){.n = 0};
    errno = error;
}

unsigned ib_device_post_recvs(ib_device_t *device, const ib_pool_t *pool,
                              const uint32_t *numbers, unsigned n)
{
    struct ibv_sge pieces[IB_BATCH];
    struct ibv_recv_wr wrs[IB_BATCH], *bad = NULL;

    for (unsigned i = 0; i < n; i++) {
        pieces[i] = (struct ibv_sge){
            .addr = (uintptr_t)ib_pool_at(pool, numbers[i]),
            .length = (uint32_t)pool->size,
            .lkey = pool->mr->lkey,
        };
        wrs[i] = (struct ibv_recv_wr){
            .wr_id = numbers[i],
            .next = i + 1 < n ? &wrs[i + 1] : NULL,
            .sg_list = &pieces[i],
            .num_sge = 1,
        };
    }
    if (n == 0 || ibv_post_srq_recv(device->srq, wrs, &bad) == 0)
        return n;
    return bad ? (unsigned)(bad - wrs) : 0;
}
