/* Packets: their memory, sending them, and their completion. */
#include "agent.h"

#include <stdlib.h>
#include <string.h>

#include "note_queue.h"
#include "pscompy/transport/kit/clock.h"

/* longest time, in ns, that gw_packets_destroy waits for the fabric */
#define RELEASE_NS 2000000000
#define RELEASE_STEP_NS 1000000
#define FREE_MAX 256u /* small packets that are kept for reuse */
#define PIECES_MAX (GW_IOV_MAX + 2u)

gw_packet_t *gw_packet_create(gw_agent_t *agent, gw_ep_t *ep, size_t room)
{
    bool small = room <= GW_PATCH;
    psc_link_t *link = small ? psc_list_pop(&agent->free_packets) : NULL;
    gw_packet_t *packet;

    if (link) {
        packet = psc_container_of(link, gw_packet_t, link);
        agent->n_free--;
    } else {
        packet = malloc(sizeof *packet + (small ? GW_PATCH : room));
        if (!packet)
            return NULL;
    }
    memset(packet, 0, sizeof *packet);
    packet->link = (psc_link_t){&packet->link, &packet->link};
    packet->agent = agent;
    packet->ep = ep;
    packet->small = small;
    packet->len = (uint32_t)room;
    packet->refs = 1;
    return packet;
}

static void packet_free(gw_packet_t *packet)
{
    gw_agent_t *agent = packet->agent;

    psc_list_remove(&packet->link);
    if (!packet->small || agent->n_free >= FREE_MAX) {
        free(packet);
        return;
    }
    agent->n_free++;
    psc_list_push_front(&agent->free_packets, &packet->link);
}

void gw_op_release(gw_op_t *op)
{
    psc_comp_t *comp = op->comp;
    psc_status_t status = op->status;

    psc_list_remove(&op->link);
    free(op);
    if (comp)
        comp->func(comp, status);
}

void gw_packet_drop(gw_packet_t *packet)
{
    gw_op_t *op = packet->op;

    if (--packet->refs > 0) {
        /* A packet in no list needs no acknowledgement (any more): only send
         * requests in flight refer to it. */
        if (!psc_link_listed(&packet->link))
            psc_list_push(&packet->agent->leaving, &packet->link);
        return;
    }
    packet_free(packet);
    if (op && --op->packets == 0)
        gw_op_release(op);
}

bool gw_packets_destroy(gw_agent_t *agent)
{
    int64_t deadline = psc_clock_deadline(RELEASE_NS);

    while (!psc_list_empty(&agent->leaving) && psc_clock_now() < deadline) {
        agent->api->wait(agent->worker, NULL, 0, PSC_WAIT_ANY, RELEASE_STEP_NS);
        gw_packets_finished(agent);
    }
    psc_list_for_each(packet, &agent->free_packets, gw_packet_t, link)
        free(packet);
    psc_list_init(&agent->free_packets);
    return psc_list_empty(&agent->leaving);
}

/* Stores in `out` the parts of the buffers `pieces` that begin at `offset` and
 * have `len` bytes. Returns the number of parts. */
static size_t packet_slice(const psc_iov_t *pieces, size_t n, uint64_t offset,
                           size_t len, psc_iov_t *out)
{
    size_t n_out = 0;

    for (size_t i = 0; i < n && len > 0; i++) {
        size_t part = pieces[i].len;

        if (offset >= part) {
            offset -= part;
            continue;
        }
        part -= offset;
        part = part < len ? part : len;
        out[n_out++] = (psc_iov_t){(uint8_t *)pieces[i].base + offset, part};
        offset = 0;
        len -= part;
    }
    return n_out;
}

static size_t packet_pieces(gw_packet_t *packet, psc_iov_t *out)
{
    psc_iov_t all[PIECES_MAX];
    gw_op_t *op = packet->op;

    if (!op) {
        out[0] = (psc_iov_t){packet->data, packet->len};
        return packet->len > 0;
    }
    all[0] = (psc_iov_t){&op->message, sizeof op->message};
    all[1] = (psc_iov_t){op->header, op->message.header_len};
    memcpy(all + 2, op->iov, op->n_iov * sizeof *op->iov);
    return packet_slice(all, op->n_iov + 2, packet->offset, packet->len, out);
}

psc_status_t gw_packet_send(gw_packet_t *packet, gw_path_t *path)
{
    gw_agent_t *agent = packet->agent;
    psc_iov_t pieces[PIECES_MAX];
    psc_send_args_t args = {.iov = pieces,
                            .n_iov = packet_pieces(packet, pieces),
                            .flags = PSC_FLAG_NOTIFY,
                            .owner = packet};
    psc_request_t *request;
    psc_status_t status;

    if (!path || !path->conn)
        return PSC_ERR_NO_RESOURCE;
    status = agent->api->am_send(path->conn, GW_AM_ID, &packet->head,
                                 sizeof packet->head, &args, &request);
    if (status == PSC_ERR_NO_MEMORY)
        return PSC_ERR_NO_RESOURCE;
    /* the connection is broken, which the Python half notices only later */
    if (status < 0) {
        gw_agent_note(agent, GW_NOTE_DOWN, (uint32_t)(path - agent->paths), 0,
                      0, NULL);
        return PSC_ERR_NO_RESOURCE;
    }
    if (status == PSC_INPROGRESS)
        packet->refs++;
    return PSC_OK;
}

void gw_packet_signal(gw_ep_t *ep, gw_path_t *path, gw_kind_t kind,
                      uint8_t number, uint32_t mark)
{
    gw_agent_t *agent = gw_agent_of(ep);
    gw_packet_t *packet = gw_packet_create(agent, NULL, 0);

    if (!packet)
        return; /* no memory: the effect is that of a lost packet */
    packet->head = gw_head_to_peer(ep, kind);
    packet->head.path = number;
    packet->head.ack = ep->order.expected;
    packet->head.limit = ep->order.expected + agent->tokens;
    packet->head.mark = mark;
    gw_packet_send(packet, path);
    gw_packet_drop(packet);
}

void gw_packets_finished(gw_agent_t *agent)
{
    psc_request_t *request;

    while ((request = agent->api->completion_poll(agent->worker))) {
        gw_packet_t *packet = request->owner;

        agent->api->request_free(request);
        agent->handled++;
        if (packet)
            gw_packet_drop(packet);
    }
}
