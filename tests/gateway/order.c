/* receive.c alone: packets arrive in any order, some of them twice, and each is
 * delivered once and in order, also where the packet numbers wrap around to 0.
 * Arguments: tokens, the first packet number, the number of packets. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/pscompy_gateway/transport/receive.c"

typedef struct packet {
    psc_message_t message;
    gw_head_t head;
    gw_message_t content;
    uint32_t number;
} packet_t;

static gw_ep_t *the_ep;
static uint32_t next_number, failures, live;

/* ---- the functions that receive.c calls ---- */

void gw_out_acknowledged(gw_ep_t *ep, uint32_t ack, uint32_t limit)
{
    (void)ep, (void)ack, (void)limit;
}
void gw_out_again(gw_ep_t *ep, uint32_t paths, bool some, uint32_t clock)
{
    (void)ep, (void)paths, (void)some, (void)clock;
}
void gw_out_flush(gw_ep_t *ep)
{
    (void)ep;
}
void gw_out_abandon(gw_ep_t *ep)
{
    (void)ep;
}
void gw_ep_fail(gw_ep_t *ep, psc_status_t status, const char *reason)
{
    (void)ep, (void)status;
    fprintf(stderr, "%s\n", reason);
    failures++;
}
void gw_ep_greet(gw_ep_t *ep)
{
    (void)ep;
}
void gw_ep_take_proof(gw_ep_t *ep, unsigned kind, const uint8_t *body,
                      size_t len)
{
    (void)ep, (void)kind, (void)body, (void)len;
}
gw_ep_t *gw_ep_find(gw_agent_t *agent, uint64_t id)
{
    (void)agent, (void)id;
    return the_ep;
}
gw_path_t *gw_path_choose(gw_ep_t *ep, size_t len)
{
    (void)ep, (void)len;
    return NULL;
}
gw_packet_t *gw_packet_create(gw_agent_t *agent, gw_ep_t *ep, size_t room)
{
    (void)agent, (void)ep, (void)room;
    return NULL;
}
void gw_packet_drop(gw_packet_t *packet)
{
    (void)packet;
}
psc_status_t gw_packet_send(gw_packet_t *packet, gw_path_t *path)
{
    (void)packet, (void)path;
    return PSC_OK;
}
void gw_packet_signal(gw_ep_t *ep, gw_path_t *path, gw_kind_t kind,
                      uint8_t number, uint32_t mark)
{
    (void)ep, (void)path, (void)kind, (void)number, (void)mark;
}

/* ---- the core: the upcall that takes messages, and packets ---- */

static psc_status_t am_recv(psc_ep_t *ep, const psc_am_t *am)
{
    uint32_t number;

    (void)ep;
    memcpy(&number, am->payload, sizeof number);
    if (number != next_number++)
        failures++;
    return PSC_OK;
}

static void message_free(psc_worker_t *worker, psc_message_t *message)
{
    (void)worker;
    live--;
    free(message);
}

static psc_message_t *packet_create(uint32_t seq, uint32_t number)
{
    packet_t *packet = calloc(1, sizeof *packet);

    if (!packet)
        exit(1);
    packet->head = (gw_head_t){.kind = GW_DATA, .flags = GW_FIRST, .seq = seq};
    packet->content.len = sizeof number;
    packet->number = number;
    packet->message =
        (psc_message_t){.header = &packet->head,
                        .header_len = sizeof packet->head,
                        .payload = &packet->content,
                        .len = offsetof(packet_t, number) + sizeof number -
                               offsetof(packet_t, content)};
    live++;
    return &packet->message;
}

/* Sends packets until all are delivered: each time any packet that the receiver
 * accepts, also one that has arrived before. */
static void send_shuffled(gw_agent_t *agent, uint32_t first, uint32_t count)
{
    for (uint64_t tries = 0; next_number < count && tries < 1u << 24; tries++) {
        uint32_t ahead = (uint32_t)rand() % (agent->tokens + 2);
        uint32_t number = next_number + ahead - (ahead > agent->tokens);

        if (number < count)
            gw_in_take(agent, packet_create(first + number, number));
    }
}

int main(int argc, char **argv)
{
    static psc_upcalls_t up = {.am_recv = am_recv};
    static psc_api_t api = {.message_free = message_free};
    static gw_agent_t agent;
    gw_ep_t ep = {.super.iface = &agent.super, .state = GW_EP_UP};
    uint32_t first, count;

    if (argc != 4)
        return 2;
    agent.super.up = &up;
    agent.api = &api;
    agent.tokens = (uint32_t)strtoul(argv[1], NULL, 0);
    first = ep.order.expected = (uint32_t)strtoul(argv[2], NULL, 0);
    count = (uint32_t)strtoul(argv[3], NULL, 0);
    ep.order.limit = agent.tokens;
    ep.order.size = psc_reorder_size(agent.tokens);
    ep.order.held = calloc(ep.order.size, sizeof *ep.order.held);
    the_ep = &ep;
    send_shuffled(&agent, first, count);
    gw_in_forget(&ep);
    free(ep.order.held);
    printf("%u of %u in order, %u wrong, %u lost\n", next_number, count,
           failures, live);
    return next_number != count || failures || live;
}
