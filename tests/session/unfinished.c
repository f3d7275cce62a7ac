/* A send of C code that nobody receives, and its completion; a receive that
 * waits; a connection that C opens, and why that has failed. */
#include "pscompy/core/api.h"

static char message[1 << 20];

int send_unfinished(const psc_api_t *api, psc_conn_t *conn, void *owner)
{
    psc_iov_t iov = {message, sizeof message};
    psc_send_args_t args = {.context = PSC_CONTEXT_PLAIN,
                            .iov = &iov,
                            .n_iov = 1,
                            .flags = PSC_FLAG_NOTIFY,
                            .owner = owner};
    psc_request_t *request;

    return api->send(conn, &args, &request);
}

/* Returns the owner of the next request that has completed, or NULL. */
void *take_completion(const psc_api_t *api, psc_worker_t *worker)
{
    psc_request_t *request = api->completion_poll(worker);
    void *owner = request ? request->owner : NULL;

    if (request)
        api->request_free(request);
    return owner;
}

/* Receive one message with this tag, and wait for it. */
int receive(const psc_api_t *api, psc_worker_t *worker, int tag)
{
    psc_iov_t iov = {message, sizeof message};
    psc_recv_args_t args = {
        .context = PSC_CONTEXT_PLAIN, .tag = tag, .iov = &iov, .n_iov = 1};
    psc_request_t *request;
    psc_result_t result;
    psc_status_t status = api->recv(worker, &args, &result, &request);

    if (status != PSC_INPROGRESS)
        return status;
    do
        status = api->wait(worker, &request, 1, PSC_WAIT_ALL | PSC_WAIT_OWN,
                           PSC_FOREVER);
    while (status == PSC_ERR_INTERRUPTED);
    api->request_free(request);
    return status;
}

int open_connection(const psc_api_t *api, psc_conn_t *conn)
{
    return api->conn_open(conn, 0);
}

void error_of(const psc_api_t *api, psc_conn_t *conn, char *text, size_t room)
{
    api->conn_error(conn, text, room);
}
