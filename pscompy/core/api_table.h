/* The functions of psc_api_t that api_message.c and api_memory.c implement. */
#ifndef PSCOMPY_CORE_API_TABLE_H
#define PSCOMPY_CORE_API_TABLE_H

#include "types/conn.h"

static inline psc_req_t *psc_req_of(psc_request_t *request)
{
    return psc_container_of(request, psc_req_t, head);
}

/* ---- api_message.c ---- */

psc_status_t psc_api_send(psc_conn_t *conn, const psc_send_args_t *args,
                          psc_request_t **request_p);
psc_status_t psc_api_recv(psc_worker_t *worker, const psc_recv_args_t *args,
                          psc_result_t *result_p, psc_request_t **request_p);
psc_status_t psc_api_recv_supply(psc_request_t *request, const psc_iov_t *iov,
                                 size_t n_iov);
psc_status_t psc_api_recv_view(psc_request_t *request, psc_view_t **view_p);
psc_status_t psc_api_probe(psc_worker_t *worker, const psc_recv_args_t *args,
                           psc_result_t *result_p, psc_request_t **request_p);
psc_status_t psc_api_iprobe(psc_worker_t *worker, const psc_recv_args_t *args,
                            psc_result_t *result_p);
psc_status_t psc_api_cancel(psc_request_t *request);
psc_status_t psc_api_recv_give_up(psc_request_t *request);
psc_status_t psc_api_recv_return(psc_worker_t *worker, uint32_t context,
                                 const psc_result_t *result,
                                 const psc_iov_t *iov, size_t n_iov);
psc_status_t psc_api_am_send(psc_conn_t *conn, uint32_t id, const void *header,
                             size_t header_len, const psc_send_args_t *args,
                             psc_request_t **request_p);
psc_status_t psc_api_am_handler(psc_worker_t *worker, uint32_t id,
                                psc_am_handler_t handler, void *arg);
psc_message_t *psc_api_message_poll(psc_worker_t *worker);
void psc_api_message_free(psc_worker_t *worker, psc_message_t *message);

/* ---- api_memory.c ---- */

void psc_api_region_destroy(psc_region_t *region);
psc_status_t psc_api_put(psc_conn_t *conn, const psc_send_args_t *args,
                         const uint8_t *packed, size_t packed_len,
                         uint64_t offset, psc_request_t **request_p);
psc_status_t psc_api_get(psc_conn_t *conn, const psc_send_args_t *args,
                         const uint8_t *packed, size_t packed_len,
                         uint64_t offset, psc_request_t **request_p);

#endif
