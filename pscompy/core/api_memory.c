/* The functions of psc_api_t for memory that peers access and for memory
 * registered with the transports; control.h offers some of them, too. */
#include <time.h>

#include "api_table.h"
#include "memory/memory.h"
#include "progress/progress.h"
#include "../proto/bundle.h"
#include "../proto/rma.h"
#include "worker.h"

int psc_memory_register(psc_worker_t *worker, void *base, size_t len,
                        psc_region_t **region_p)
{
    return psc_worker_locked(worker, 0,
                             psc_region_create(worker, base, len, region_p));
}

int psc_memory_deregister(psc_region_t *region)
{
    psc_worker_t *worker = region->worker;
    psc_status_t status = psc_worker_enter(worker, 0);

    if (status != PSC_OK)
        return status;
    status = psc_region_close(region);
    if (status == PSC_INPROGRESS)
        psc_worker_progress_locked(worker, PSC_PASS_ALL);
    psc_worker_leave(worker);
    return status;
}

#define API_CLOSE_PAUSE_NS 100000

void psc_api_region_destroy(psc_region_t *region)
{
    static const struct timespec pause = {.tv_nsec = API_CLOSE_PAUSE_NS};

    while (psc_memory_deregister(region) == PSC_INPROGRESS)
        nanosleep(&pause, NULL);
}

int psc_memory_pack(psc_region_t *region, uint8_t *packed, size_t *len_p)
{
    return psc_worker_locked(region->worker, 0,
                             psc_region_pack(region, packed, len_p));
}

int psc_memory_pin(psc_worker_t *worker, void *base, size_t len,
                   psc_block_t **block_p)
{
    return psc_worker_locked(
        worker, 0, psc_pool_pin(worker->memory.pool, base, len, block_p));
}

void psc_memory_unpin(psc_worker_t *worker, psc_block_t *block)
{
    if (psc_worker_enter(worker, 0) != PSC_OK)
        return;
    psc_pool_unpin(worker->memory.pool, block);
    psc_worker_leave(worker);
}

static psc_status_t api_rma(psc_conn_t *conn, const psc_send_args_t *args,
                            const psc_rma_args_t *rma,
                            psc_request_t **request_p)
{
    return psc_worker_locked(conn->worker, args->flags,
                             psc_rma_start(conn, args, rma, request_p));
}

psc_status_t psc_api_put(psc_conn_t *conn, const psc_send_args_t *args,
                         const uint8_t *packed, size_t packed_len,
                         uint64_t offset, psc_request_t **request_p)
{
    return api_rma(conn, args,
                   &(psc_rma_args_t){packed, packed_len, offset, true},
                   request_p);
}

psc_status_t psc_api_get(psc_conn_t *conn, const psc_send_args_t *args,
                         const uint8_t *packed, size_t packed_len,
                         uint64_t offset, psc_request_t **request_p)
{
    return api_rma(conn, args,
                   &(psc_rma_args_t){packed, packed_len, offset, false},
                   request_p);
}

psc_status_t psc_api_offer(psc_conn_t *conn, const psc_send_args_t *args,
                           uint8_t *packed, size_t *len_p,
                           psc_request_t **request_p)
{
    return psc_worker_locked(
        conn->worker, args->flags,
        psc_bundle_offer(conn, args, packed, len_p, request_p));
}

psc_status_t psc_api_fetch(psc_conn_t *conn, const psc_send_args_t *args,
                           const uint8_t *packed, size_t len,
                           psc_request_t **request_p)
{
    return psc_worker_locked(
        conn->worker, args->flags,
        psc_bundle_fetch(conn, args, packed, len, request_p));
}
