/* Creates, stops and destroys the hub (see hub.h). */
#include "hub.h"

#include <stdlib.h>

#include "pscompy/transport/kit/clock.h"

/* longest time, in ns, that gw_hub_destroy waits for the fabrics */
#define RELEASE_NS 2000000000
#define RELEASE_STEP_NS 1000000

gw_hub_t *gw_hub_create(uintptr_t api, uint64_t bound, uint64_t share)
{
    gw_hub_t *hub = calloc(1, sizeof *hub);

    if (!hub)
        return NULL;
    hub->api = (const psc_api_t *)api;
    hub->bound = bound;
    hub->share = share;
    pthread_rwlock_init(&hub->tables, NULL);
    psc_list_init(&hub->peers);
    for (uint32_t i = 0; i < HUB_NODE_BUCKETS; i++) {
        psc_list_init(&hub->nodes[i]);
        psc_list_init(&hub->conns[i]);
    }
    for (uint32_t i = 0; i < HUB_MODULE_BUCKETS; i++)
        psc_list_init(&hub->routes[i]);
    for (uint32_t i = 0; i < HUB_STREAM_BUCKETS; i++)
        psc_list_init(&hub->streams[i]);
    return hub;
}

int gw_hub_fabric(gw_hub_t *hub, uintptr_t worker)
{
    uint32_t index = hub->n_fabrics;

    if (index == HUB_FABRICS_MAX || hub->api->abi != PSC_API_ABI)
        return PSC_ERR_INVALID;
    hub->fabrics[index].worker = (psc_worker_t *)worker;
    if (hub->api->am_handler((psc_worker_t *)worker, GW_AM_ID, NULL, hub) !=
        PSC_OK)
        return PSC_ERR_NO_MEMORY;
    return (int)hub->n_fabrics++;
}

void gw_hub_stop(gw_hub_t *hub)
{
    atomic_store(&hub->stopping, true);
    for (uint32_t i = 0; i < hub->n_fabrics; i++)
        hub->api->wake(hub->fabrics[i].worker);
}

static void hub_finish_all(gw_hub_t *hub)
{
    psc_request_t *request;

    for (uint32_t i = 0; i < hub->n_fabrics; i++) {
        hub->api->wait(hub->fabrics[i].worker, NULL, 0, PSC_WAIT_ANY,
                       RELEASE_STEP_NS);
        while ((request = hub->api->completion_poll(hub->fabrics[i].worker)))
            hub_finished(hub, request);
    }
}

void gw_hub_destroy(gw_hub_t *hub)
{
    int64_t deadline = psc_clock_deadline(RELEASE_NS);

    do
        hub_finish_all(hub);
    while (atomic_load(&hub->held) > 0 && psc_clock_now() < deadline);
    if (atomic_load(&hub->held) > 0)
        return; /* a fabric may still read from the memory of a packet */
    hub_tables_destroy(hub);
    hub_streams_destroy(hub);
    pthread_rwlock_destroy(&hub->tables);
    free(hub);
}
