/* Forwards packets without a copy: a packet is sent from the memory that it was
 * received into. That memory is freed once the packet was sent. */
#include "hub.h"

#include <stdlib.h>

#define SERVE_NS                                                               \
    100000000 /* longest wait, in ns, before `stopping` is read again */

static void forward_free(gw_hub_t *hub, psc_worker_t *origin,
                         psc_message_t *message)
{
    hub->api->message_free(origin, message);
}

static void forward_most(gw_hub_t *hub, uint64_t held)
{
    unsigned long long most = atomic_load(&hub->held_most);

    while (held > most &&
           !atomic_compare_exchange_weak(&hub->held_most, &most, held))
        ;
}

static bool forward_reserve(gw_hub_t *hub, hub_peer_t *peer, uint64_t len)
{
    uint64_t held = atomic_fetch_add(&hub->held, len) + len;
    uint64_t share = atomic_fetch_add(&peer->held, len) + len;

    if (held <= hub->bound && share <= hub->share) {
        forward_most(hub, held);
        return true;
    }
    atomic_fetch_sub(&hub->held, len);
    atomic_fetch_sub(&peer->held, len);
    atomic_fetch_add(&hub->dropped, 1);
    atomic_fetch_add(&peer->dropped, 1);
    return false;
}

static void forward_done(gw_hub_t *hub, hub_job_t *job)
{
    atomic_fetch_sub(&hub->held, job->len);
    atomic_fetch_sub(&job->peer->held, job->len);
    atomic_fetch_add(&job->peer->left, job->len);
    forward_free(hub, job->origin, job->message);
    hub_peer_drop(job->peer);
    free(job);
}

/* Sends the packet to the peer, without a copy. Holds the peer's lock, so that
 * the peer's connection is not freed meanwhile. */
static psc_status_t forward_send(gw_hub_t *hub, hub_peer_t *peer,
                                 const psc_message_t *message, hub_job_t *job)
{
    psc_iov_t iov = {(void *)message->payload, message->len};
    psc_send_args_t args = {.iov = &iov,
                            .n_iov = message->len > 0,
                            .flags = PSC_FLAG_NOTIFY,
                            .owner = job};
    psc_request_t *request;
    psc_status_t status = PSC_ERR_CLOSED;

    pthread_mutex_lock(&peer->lock);
    if (peer->conn)
        status = hub->api->am_send(peer->conn, GW_AM_ID, message->header,
                                   message->header_len, &args, &request);
    pthread_mutex_unlock(&peer->lock);
    return status;
}

static void forward_to(gw_hub_t *hub, hub_fabric_t *fabric, hub_peer_t *peer,
                       psc_message_t *message)
{
    uint64_t len = message->len + message->header_len;
    hub_job_t *job = malloc(sizeof *job);
    psc_status_t status;

    if (!job || !forward_reserve(hub, peer, len)) {
        free(job);
        forward_free(hub, fabric->worker, message);
        hub_peer_drop(peer);
        return;
    }
    *job = (hub_job_t){
        .message = message, .origin = fabric->worker, .peer = peer, .len = len};
    atomic_fetch_add(&hub->packets, 1);
    atomic_fetch_add(&hub->bytes, message->len);
    atomic_fetch_add(&peer->out_packets, 1);
    atomic_fetch_add(&peer->out_bytes, message->len);
    status = forward_send(hub, peer, message, job);
    if (status != PSC_INPROGRESS) /* not in flight: the message was sent at
                                     once, or the peer has ended */
        forward_done(hub, job);
}

/* Notifies the sender that this gateway knows no way to the destination; the
 * sender retransmits the packet through another gateway. */
static void forward_refuse(gw_hub_t *hub, hub_fabric_t *fabric,
                           psc_message_t *message)
{
    const gw_head_t *head = message->header;
    gw_head_t answer = {.kind = GW_UNREACHABLE,
                        .path = head->path,
                        .to_module = head->from_module,
                        .from_module = head->to_module,
                        .to_node = head->from_node,
                        .from_node = head->to_node,
                        .to_ep = head->from_ep};

    atomic_fetch_add(&hub->unreachable, 1);
    if (head->kind == GW_DATA || head->kind == GW_PROBE)
        hub->api->am_post(message->source, GW_AM_ID, &answer, sizeof answer,
                          NULL, 0);
    forward_free(hub, fabric->worker, message);
}

static void forward_count(gw_hub_t *hub, const psc_message_t *message)
{
    hub_peer_t *from = hub_peer_of(hub, message->source);

    if (!from)
        return;
    atomic_fetch_add(&from->in_packets, 1);
    atomic_fetch_add(&from->in_bytes, message->len);
    hub_peer_drop(from);
}

static void hub_forward(gw_hub_t *hub, hub_fabric_t *fabric,
                        psc_message_t *message)
{
    /* the gateway owns the message and may change it */
    gw_head_t *head = (gw_head_t *)message->header;
    hub_peer_t *peer;

    if (message->header_len != sizeof *head) {
        forward_free(hub, fabric->worker, message);
        return;
    }
    forward_count(hub, message);
    if (head->kind == GW_REGISTER) {
        hub_register(hub, message->source, head->from_node, head->from_module);
        forward_free(hub, fabric->worker, message);
        return;
    }
    peer = head->hops < GW_HOPS_MAX
               ? hub_find(hub, head->to_node, head->to_module)
               : NULL;
    if (!peer) {
        forward_refuse(hub, fabric, message);
        return;
    }
    hub_stream_count(hub, head, message->len);
    head->hops++;
    forward_to(hub, fabric, peer, message);
}

void hub_finished(gw_hub_t *hub, psc_request_t *request)
{
    hub_job_t *job = request->owner;

    hub->api->request_free(request);
    if (job)
        forward_done(hub, job);
}

void gw_hub_serve(gw_hub_t *hub, uint32_t index)
{
    hub_fabric_t *fabric = &hub->fabrics[index];
    psc_request_t *request;
    psc_message_t *message;

    while (!atomic_load(&hub->stopping)) {
        while ((request = hub->api->completion_poll(fabric->worker)))
            hub_finished(hub, request);
        while ((message = hub->api->message_poll(fabric->worker)))
            hub_forward(hub, fabric, message);
        if (hub->api->wait(fabric->worker, NULL, 0, PSC_WAIT_ANY, SERVE_NS) ==
            PSC_ERR_FORKED)
            break;
    }
    atomic_store(&fabric->ended, true);
}
