/* The table of operations, and the agent from its creation to its end. */
#include "transport.h"

#include <stdio.h>
#include <stdlib.h>

#include "note_queue.h"
#include "pscompy/transport/kit/settings.h"

/* The setting that holds the address of the agent; the Python half adds it. */
#define AGENT_SETTING "agent"
/* maximum number of messages that one call of progress handles */
#define MESSAGES_MAX 64u
#define ZCOPY_MAX (1u << 20)

static const psc_transport_ops_t gateway_ops;

static psc_status_t gateway_open(const psc_open_params_t *params,
                                 psc_iface_t **iface_p)
{
    int64_t handle = psc_setting_number(params, AGENT_SETTING);
    gw_agent_t *agent = (gw_agent_t *)(uintptr_t)handle;
    int64_t tokens = psc_setting_number(params, "TOKENS");
    int64_t pending = psc_setting_number(params, "PENDING_TOKENS");

    if (!agent || agent->open) {
        snprintf(params->reason, PSC_REASON_MAX, "opened without an agent");
        return PSC_ERR_INVALID;
    }
    agent->mtu = psc_setting_count(params, "MTU");
    agent->tokens = tokens ? (uint32_t)tokens : GW_TOKENS_MAX;
    agent->pending = pending < 0 ? agent->tokens / 4 : (uint32_t)pending;
    if (agent->pending > agent->tokens / 2)
        agent->pending = agent->tokens / 2;
    agent->window = (uint64_t)psc_setting_number(params, "WINDOW");
    agent->super = (psc_iface_t){
        .ops = &gateway_ops, .up = params->up, .user = params->user};
    agent->open = true;
    *iface_p = &agent->super;
    return PSC_OK;
}

static void gateway_query(psc_iface_t *iface, psc_iface_attr_t *attr_p)
{
    gw_agent_t *agent = (gw_agent_t *)iface;

    *attr_p = (psc_iface_attr_t){
        .caps =
            PSC_CAP_AM_ZCOPY | PSC_CAP_EVENT | PSC_CAP_EOF | PSC_CAP_MODULES,
        .max_bcopy = agent->mtu - sizeof(gw_message_t),
        .max_zcopy = ZCOPY_MAX,
        .min_zcopy = 4096,
        .max_iov = GW_IOV_MAX,
        .latency_ns = 40e3,
        .overhead_ns = 3e3,
        .bandwidth = 2e9,
        .copy_bandwidth = 3e9,
        .poll_ns = 500,
        .paths = 1,
    };
}

static unsigned gateway_progress(psc_iface_t *iface)
{
    gw_agent_t *agent = (gw_agent_t *)iface;
    psc_message_t *message;
    unsigned n = 0;

    agent->in_progress = true;
    agent->handled = 0;
    gw_notes_apply(agent);
    agent->handled += agent->api->sleeper_progress(agent->sleeper);
    gw_packets_finished(agent);
    while (n++ < MESSAGES_MAX &&
           (message = agent->api->message_poll(agent->worker)))
        gw_in_take(agent, message);
    psc_list_for_each(ep, &agent->due, gw_ep_t, due_link)
        gw_in_deliver(ep);
    gw_in_answer(agent);
    agent->in_progress = false;
    gw_ep_free_dead(agent);
    return agent->handled;
}

/* Returns the descriptor of a sleeper of the session to the gateways. The
 * transport has no epoll set of its own, because epoll sets may be nested five
 * deep only, and both sessions have some. Any progress on the session to the
 * gateways makes the descriptor readable, which wakes a thread that sleeps on
 * the session that uses this transport. */
static int gateway_event_fd(psc_iface_t *iface)
{
    gw_agent_t *agent = (gw_agent_t *)iface;

    return agent->api->sleeper_descriptor(agent->sleeper);
}

static psc_status_t gateway_arm(psc_iface_t *iface)
{
    gw_agent_t *agent = (gw_agent_t *)iface;
    psc_status_t status = agent->api->sleeper_arm(agent->sleeper);

    if (atomic_load(&agent->notes) || !psc_list_empty(&agent->due))
        /* the thread must not sleep, because there is work to do; notes (events
         * from Python) that are queued later wake it */
        return PSC_ERR_NO_RESOURCE;
    return status;
}

static void gateway_fini(psc_iface_t *iface)
{
    gw_agent_t *agent = (gw_agent_t *)iface;

    psc_list_for_each(ep, &agent->eps, gw_ep_t, link)
        gw_ep_fini(&ep->super);
    gw_packets_finished(agent);
}

static const psc_transport_ops_t gateway_ops = {
    .abi = PSC_TRANSPORT_ABI,
    .size = sizeof(psc_transport_ops_t),
    .name = "gateway",
    .open = gateway_open,
    .query = gateway_query,
    .progress = gateway_progress,
    .close = psc_kit_close,
    .stop = psc_kit_stop,
    .fini = gateway_fini,
    .ep_create = gw_ep_create,
    .ep_address = gw_ep_address,
    .ep_connect = gw_ep_connect,
    .ep_close = gw_ep_close,
    .ep_stop = gw_ep_stop,
    .ep_fini = gw_ep_fini,
    .am_bcopy = gw_am_bcopy,
    .am_zcopy = gw_am_zcopy,
    .event_fd = gateway_event_fd,
    .arm = gateway_arm,
};

uintptr_t pscompy_gateway_transport(void)
{
    return (uintptr_t)&gateway_ops;
}

/* ---- for Python ---- */

gw_agent_t *gw_agent_create(uintptr_t api, uintptr_t worker, uint64_t node,
                            uint32_t module)
{
    gw_agent_t *agent = calloc(1, sizeof *agent);

    if (!agent)
        return NULL;
    agent->api = (const psc_api_t *)api;
    agent->worker = (psc_worker_t *)worker;
    agent->node = node;
    agent->module = (uint16_t)module;
    psc_list_init(&agent->eps);
    psc_list_init(&agent->due);
    psc_list_init(&agent->graveyard);
    psc_list_init(&agent->free_packets);
    psc_list_init(&agent->leaving);
    psc_list_init(&agent->routes);
    if (agent->api->abi != PSC_API_ABI ||
        agent->api->sleeper_create(agent->worker, &agent->sleeper) != PSC_OK ||
        agent->api->am_handler(agent->worker, GW_AM_ID, NULL, agent) !=
            PSC_OK) {
        gw_agent_destroy(agent);
        return NULL;
    }
    return agent;
}

void gw_agent_destroy(gw_agent_t *agent)
{
    psc_link_t *link;

    gw_notes_destroy(agent);
    if (!gw_packets_destroy(agent))
        return; /* the fabric may still read from the memory of a packet */
    if (agent->sleeper)
        agent->api->sleeper_release(agent->worker, agent->sleeper);
    while ((link = psc_list_pop(&agent->routes)))
        free(psc_container_of(link, gw_route_t, link));
    free(agent->table);
    free(agent);
}

int gw_agent_unsettled(gw_agent_t *agent)
{
    return (int)atomic_load(&agent->unsettled);
}
