/* A send of C code that nobody receives, and its completion. */
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
