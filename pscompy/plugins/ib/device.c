/* Opens the objects that all connections over a device share, and pools of
 * registered memory. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "select_device.h"
#include "pscompy/transport/kit/page.h"

#define IB_FORK_UNNEEDED 2 /* as IBV_FORK_UNNEEDED of rdma-core 35 */

void ib_device_name(const ib_device_t *device, char *name, size_t room)
{
    snprintf(name, room, "%s/%u", ibv_get_device_name(device->context->device),
             device->port);
}

void ib_device_domain(const ib_device_t *device, char *text, size_t room)
{
    if (device->td_pd)
        snprintf(text, room, "with a thread domain");
    else
        snprintf(text, room, "without a thread domain: %s",
                 strerror(device->td_error));
}

bool ib_device_active(const ib_device_t *device)
{
    struct ibv_port_attr attr;

    return ibv_query_port(device->context, device->port, &attr) == 0 &&
           attr.state == IBV_PORT_ACTIVE;
}

static bool ib_nonblocking(int fd)
{
    int flags = fcntl(fd, F_GETFL);

    return flags >= 0 && fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

static unsigned ib_device_at_most(unsigned wanted, int limit)
{
    return limit > 0 && wanted > (unsigned)limit ? (unsigned)limit : wanted;
}

/* Creates a thread domain for the queue pairs, if the device supports that. The
 * queue pairs then have a doorbell page that no other interface uses, and the
 * verbs library takes no lock: the worker's lock already lets only one thread
 * at a time use them. */
static void ib_device_separate(ib_device_t *device)
{
    struct ibv_td_init_attr nothing = {0};
    struct ibv_parent_domain_init_attr parent = {.pd = device->pd};

    device->td = ibv_alloc_td(device->context, &nothing);
    if (device->td) {
        parent.td = device->td;
        device->td_pd = ibv_alloc_parent_domain(device->context, &parent);
    }
    if (!device->td_pd)
        device->td_error = errno;
}

static bool ib_device_share(ib_device_t *device, const ib_choice_t *choice,
                            char *reason)
{
    struct ibv_srq_init_attr srq = {.attr = {.max_sge = 1}};

    device->comps = ib_device_at_most(choice->comps, device->attr.max_cqe);
    device->recvs = ib_device_at_most(choice->recvs, device->attr.max_cqe);
    device->recvs = ib_device_at_most(device->recvs, device->attr.max_srq_wr);
    srq.attr.max_wr = device->recvs;
    device->pd = ibv_alloc_pd(device->context);
    device->channel = ibv_create_comp_channel(device->context);
    if (!device->pd || !device->channel)
        return ib_refuse(reason, "no protection domain: %s", strerror(errno));
    ib_device_separate(device);
    device->send_cq = ibv_create_cq(device->context, (int)device->comps, NULL,
                                    device->channel, 0);
    device->recv_cq = ibv_create_cq(device->context, (int)device->recvs, NULL,
                                    device->channel, 0);
    if (!device->send_cq || !device->recv_cq)
        return ib_refuse(reason,
                         "no completion queue of %u and %u: %s "
                         "(PSP_IB_COMPQ_SIZE, PSP_IB_SRQ_SIZE)",
                         device->comps, device->recvs, strerror(errno));
    device->srq = ibv_create_srq(device->pd, &srq);
    if (!device->srq)
        return ib_refuse(reason,
                         "no shared receive queue of %u: %s (PSP_IB_SRQ_SIZE)",
                         device->recvs, strerror(errno));
    return ib_nonblocking(device->channel->fd) &&
           ib_nonblocking(device->context->async_fd);
}

/* Asks the library of verbs whether the kernel copies registered pages at a
 * fork. Libraries older than rdma-core 35 do not have the function, nor their
 * headers its type. */
static bool ib_device_forks(void)
{
    int (*ask)(void);

    *(void **)&ask = dlsym(RTLD_DEFAULT, "ibv_is_fork_initialized");
    return ask && ask() == IB_FORK_UNNEEDED;
}

bool ib_device_open(ib_device_t *device, const ib_choice_t *choice,
                    char *reason)
{
    if (!ib_device_select(device, choice, reason))
        return false;
    device->forks = ib_device_forks();
    if (ib_device_share(device, choice, reason))
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
    if (device->td_pd)
        ibv_dealloc_pd(device->td_pd);
    if (device->td)
        ibv_dealloc_td(device->td);
    if (device->pd)
        ibv_dealloc_pd(device->pd);
    ibv_close_device(device->context);
    memset(device, 0, sizeof(*device));
}

bool ib_device_reserve(ib_device_t *device, unsigned comps)
{
    unsigned more = ib_device_at_most(comps + comps / 2, device->attr.max_cqe);

    if (comps <= device->comps)
        return true;
    if (more < comps)
        errno = ENOSPC;
    if (more < comps || ibv_resize_cq(device->send_cq, (int)more) != 0)
        return false;
    device->comps = more;
    return true;
}

/* ---- memory ---- */

bool ib_pool_open(ib_pool_t *pool, ib_device_t *device, size_t size, unsigned n,
                  int access)
{
    size_t mapped = psc_page_up(size * n);
    void *base = mmap(NULL, mapped, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    *pool = (ib_pool_t){.size = size, .n = n, .n_free = n};
    if (base == MAP_FAILED)
        return false;
    pool->base = base;
    pool->mapped = mapped;
    madvise(base, mapped, MADV_DONTFORK);
    pool->free = calloc(n, sizeof(*pool->free));
    pool->mr =
        ibv_reg_mr(device->pd, base, mapped, IBV_ACCESS_LOCAL_WRITE | access);
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
