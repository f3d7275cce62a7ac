/* The structures of the transport `gateway`: one agent per session that uses
 * the transport, paths to gateways, endpoints, packets.
 *
 * The agent has a session of its own to the gateways, whose fabric carries the
 * packets. All functions run in calls of the transport contract
 * (psc_transport_ops_t), with the lock of the session that the transport
 * belongs to, except gw_agent_*, which the Python half calls on its own thread:
 * gw_agent_note and gw_agent_load queue a note for the progress function. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "pscompy/core/api.h"
#include "pscompy/transport/kit/list.h"
#include "pscompy/transport/kit/operations.h"
#include "pscompy/transport/kit/reorder.h"
#include "pscompy/transport/kit/token_proof.h"
#include "../wire.h"

#define GW_PATHS_MAX 32u
#define GW_NAME_MAX 256u
#define GW_TOKENS_MAX 4096u
#define GW_IOV_MAX 8u
#define GW_ENDPOINTS_MAX (1u << 24)
/* bytes of a small packet, whose memory is kept for reuse */
#define GW_PATCH 1024u

typedef struct gw_agent gw_agent_t;
typedef struct gw_ep gw_ep_t;

/* The path through one gateway, which is, or was, connected. */
typedef struct gw_path {
    psc_conn_t *conn; /* the connection to the gateway; NULL while the path is
                         down */
    char name[GW_NAME_MAX];
    uint64_t inflight; /* bytes that this process has sent on the path and that
                          are not acknowledged */
    uint64_t others; /* bytes in flight of other processes, as the gateway
                        reports */
    uint32_t streams; /* pairs of processes with traffic through the gateway, as
                         it reports */
    uint32_t eps; /* number of endpoints that have this path as their home (see
                     gw_way_t) */
} gw_path_t;

/* A zero-copy send: its packets point into the caller's buffers. */
typedef struct gw_op {
    psc_link_t link; /* in the endpoint's list out.ops */
    psc_comp_t *comp;
    gw_message_t message;
    uint8_t header[PSC_AM_HEADER_MAX];
    psc_iov_t iov[GW_IOV_MAX];
    size_t n_iov;
    uint64_t cut; /* bytes of the message for which packets were made */
    uint32_t packets; /* references: 1 per packet that points into the buffers,
                         and 1 until all bytes are in packets */
    psc_status_t status;
} gw_op_t;

typedef struct gw_packet {
    psc_link_t link; /* in the endpoint's list out.unacked, or in the agent's
                        list `leaving` or `free_packets` */
    gw_head_t head;
    gw_agent_t *agent;
    gw_ep_t *ep; /* the endpoint that sends the packet; NULL for a packet that
                    the peer does not acknowledge */
    gw_op_t *op; /* the zero-copy send whose bytes from `offset` on are the
                    payload; NULL if the payload is in `data` */
    uint64_t offset;
    uint32_t len; /* bytes of payload, after `head` */
    uint32_t clock; /* the endpoint's out.clock when the packet was last sent */
    uint32_t refs; /* references: 1 until the packet is acknowledged, and 1 per
                      send request in flight */
    uint8_t path; /* index of the path on which the packet was last sent */
    bool small; /* `data` has room for GW_PATCH bytes */
    bool waiting; /* the packet waits to be sent, or to be sent again */
    uint8_t data[];
} gw_packet_t;

typedef enum gw_ep_state {
    GW_EP_NEW, /* the endpoint was created; packets that arrive wait until
                  ep_connect names the peer */
    GW_EP_PROVING, /* the token proof is in progress */
    GW_EP_UP,
    GW_EP_CLOSING, /* this side has closed; its packets are sent again until
                      acknowledged */
    GW_EP_ENDED
} gw_ep_state_t;

/* The paths that the packets of an endpoint take. */
typedef struct gw_way {
    uint32_t home; /* index of the path that short packets take;
                      GW_PATHS_MAX: none is chosen */
    uint32_t unreachable; /* bit mask of paths that do not lead to the peer */
} gw_way_t;

/* Packets that an endpoint sends, until the peer has acknowledged them. */
typedef struct gw_outgoing {
    psc_list_t unacked; /* gw_packet_t that are not acknowledged, in the order
                           of their numbers */
    psc_list_t ops; /* gw_op_t, the zero-copy sends that are not completed, in
                       order */
    uint32_t next; /* number of the next packet */
    uint32_t acked; /* all packets below this number are acknowledged */
    uint32_t limit; /* packets below this number may be sent */
    uint32_t asked; /* the number after the last packet with GW_ACK_NOW */
    uint32_t clock; /* incremented by each packet and each probe that is sent */
    uint32_t n_ops; /* number of ops for which not all packets were made */
    uint32_t n_waiting; /* number of packets in `unacked` that wait to be
                           sent */
    uint64_t copied; /* bytes of copied payload in `unacked` */
} gw_outgoing_t;

/* A long message that is arriving. */
typedef struct gw_arrival {
    bool active;
    psc_dest_t dest;
    uint64_t begun, left; /* `begun`: bytes that have arrived; `left`: bytes
                             that are still missing */
} gw_arrival_t;

/* The acknowledgement that an endpoint is to send. */
typedef struct gw_answer {
    /* `owed`: an acknowledgement is to be sent; `now`: the acknowledgement must
     * not be delayed, because the peer waits for it */
    bool owed, now;
    uint32_t unanswered; /* packets received since the last acknowledgement */
} gw_answer_t;

/* Counters that find a peer that does not acknowledge packets; see probe.c. */
typedef struct gw_watch {
    uint32_t ticks; /* number of ticks (of 0.1 s) in which an acknowledgement
                       was missing */
    uint32_t stranded; /* number of ticks in which no path led to the peer */
    uint32_t last_acked; /* out.acked at the last tick */
} gw_watch_t;

struct gw_ep {
    psc_ep_t super;
    psc_link_t link, due_link; /* links in the agent's lists `eps` and `due` */
    gw_ep_state_t state;
    bool freed; /* the endpoint has ended, and is in the agent's list
                   `graveyard` until the progress function has returned */
    /* this side connects, and its hello (see gw_ep_greet) is to be sent by the
     * next call of the progress function, which first reads the notes
     * (note_queue.h), some of which contain routes */
    bool hello_due;
    uint64_t id;
    gw_address_t peer;
    psc_proof_t proof; /* the token proof, which authenticates the peer;
                          ep_connect starts it */
    gw_outgoing_t out;
    psc_reorder_t order; /* keeps packets that were received out of order */
    gw_arrival_t arriving;
    gw_answer_t answer;
    gw_way_t way;
    gw_watch_t watch;
};

/* An entry of the route file: a node that only one path leads to. */
typedef struct gw_route {
    psc_link_t link;
    uint64_t node;
    uint32_t path;
} gw_route_t;

struct gw_agent {
    psc_iface_t super;
    const psc_api_t *api;
    psc_worker_t *worker; /* worker of the session to the gateways */
    psc_sleeper_t *sleeper; /* a sleeper of that worker, whose descriptor wakes
                               the session that uses this transport */
    uint64_t node;
    uint16_t module;
    uint32_t mtu, tokens, pending;
    uint64_t window;
    gw_path_t paths[GW_PATHS_MAX];
    psc_list_t eps, due, graveyard;
    psc_list_t free_packets;
    psc_list_t leaving; /* packets that need no acknowledgement (any more), but
                           whose send requests are in flight */
    psc_list_t routes;
    gw_ep_t **table; /* endpoints by the low bits of their id */
    uint32_t table_size, n_eps, n_free;
    unsigned handled;
    bool open, in_progress, holding;
    atomic_uint unsettled; /* number of endpoints with unacknowledged packets */
    _Atomic(struct gw_note *) notes; /* events that Python has queued; see
                                        note_queue.h */
};

static inline gw_agent_t *gw_agent_of(const gw_ep_t *ep)
{
    return (gw_agent_t *)ep->super.iface;
}

static inline gw_head_t gw_head_to_peer(const gw_ep_t *ep, gw_kind_t kind)
{
    const gw_agent_t *agent = gw_agent_of(ep);

    return (gw_head_t){.kind = kind,
                       .to_module = ep->peer.module,
                       .from_module = agent->module,
                       .to_node = ep->peer.node,
                       .from_node = agent->node,
                       .to_ep = ep->peer.ep,
                       .from_ep = ep->id};
}

/* Lists the endpoint as due: the progress function serves it before it
 * returns. */
static inline void gw_ep_due(gw_ep_t *ep)
{
    if (!ep->freed && !psc_link_listed(&ep->due_link))
        psc_list_push(&gw_agent_of(ep)->due, &ep->due_link);
}

/* ---- operations ---- */

PSC_OPERATIONS(gw);

/* ---- paths.c: the gateway that a packet is sent to ---- */

/* Returns the path for the next packet, of `len` bytes, or NULL if no path
 * leads to the peer. */
gw_path_t *gw_path_choose(gw_ep_t *ep, size_t len);
/* Returns a bit mask of the paths that may lead to the peer. */
uint32_t gw_path_usable(const gw_ep_t *ep);
/* Makes the endpoint leave its home path; the next packet chooses another. */
void gw_path_leave(gw_ep_t *ep);
/* Returns the entry of the route file for packets to this node, or NULL. */
gw_route_t *gw_path_route(gw_agent_t *agent, uint64_t node);
void gw_path_names(const gw_agent_t *agent, char *text, size_t room);
/* Reports to the session that uses this transport whether packets wait to be
 * sent, so that some thread must make progress even if the program makes no
 * call. */
void gw_path_settle(gw_ep_t *ep);

/* ---- packets.c: memory of packets, and sending packets ---- */

gw_packet_t *gw_packet_create(gw_agent_t *agent, gw_ep_t *ep, size_t room);
void gw_packet_drop(gw_packet_t *packet);
/* Sends the packet on this path. Returns NO_RESOURCE if the path is down or its
 * connection is broken. */
psc_status_t gw_packet_send(gw_packet_t *packet, gw_path_t *path);
/* Sends a packet that consists of its header only, and is not acknowledged.
 * `number` is the index of the path that the packet reports about. */
void gw_packet_signal(gw_ep_t *ep, gw_path_t *path, gw_kind_t kind,
                      uint8_t number, uint32_t mark);
/* Releases packets whose requests have completed. */
void gw_packets_finished(gw_agent_t *agent);
/* Frees the packets. Waits until the fabric has released the memory of packets
 * in flight. Returns false if this takes longer than two seconds. */
bool gw_packets_destroy(gw_agent_t *agent);
/* Completes an op (a zero-copy send) that no packet refers to. Its buffers
 * belong to the caller again. */
void gw_op_release(gw_op_t *op);

/* ---- send.c: the sending half of an endpoint ---- */

/* Sends a numbered packet that belongs to no message: a GW_PROOF or a
 * GW_BYE. */
psc_status_t gw_out_control(gw_ep_t *ep, uint8_t flags, const void *data,
                            size_t len);
/* Processes an acknowledgement: packets with numbers below `ack` have arrived,
 * and those below `limit` may be sent. */
void gw_out_acknowledged(gw_ep_t *ep, uint32_t ack, uint32_t limit);
/* Sends the packets of the endpoint that wait to be sent. */
void gw_out_flush(gw_ep_t *ep);
/* Sends all unacknowledged packets again that were sent on these paths (a bit
 * mask). If `some` is set, sends only those again that were sent when out.clock
 * was at most `clock`, and whose send requests have completed. */
void gw_out_again(gw_ep_t *ep, uint32_t paths, bool some, uint32_t clock);
/* Drops all packets that are not acknowledged; their ops fail with
 * PEER_LOST. */
void gw_out_abandon(gw_ep_t *ep);

/* ---- receive.c: the receiving half of an endpoint ---- */

/* Processes a packet that the session to the gateways has received. */
void gw_in_take(gw_agent_t *agent, psc_message_t *message);
/* Delivers the messages in those received packets of the endpoint that are next
 * in order. */
void gw_in_deliver(gw_ep_t *ep);
void gw_in_forget(gw_ep_t *ep);
/* Sends the acknowledgements that the endpoints in the list `due` owe to their
 * peers. */
void gw_in_answer(gw_agent_t *agent);

/* ---- probe.c: packets and peers that were lost ---- */

void gw_probe_tick(gw_ep_t *ep);

/* ---- ep.c: the table of endpoints, connecting, failing ---- */

gw_ep_t *gw_ep_find(gw_agent_t *agent, uint64_t id);
/* Removes the endpoint from the agent's table. */
void gw_ep_remove(gw_ep_t *ep);
/* Fails the endpoint. Called from the progress function only. */
void gw_ep_fail(gw_ep_t *ep, psc_status_t status, const char *reason);
/* Sends the hello, the first message of the token proof, if `hello_due` is
 * set. */
void gw_ep_greet(gw_ep_t *ep);
/* Processes a message of the token proof. Called from the progress function
 * only. */
void gw_ep_take_proof(gw_ep_t *ep, unsigned kind, const uint8_t *body,
                      size_t len);

/* ---- ep_end.c: the end of an endpoint ---- */

/* Frees endpoints that ended while the progress function used them. */
void gw_ep_free_dead(gw_agent_t *agent);

/* ---- notes.c: the notes of the Python half ---- */

void gw_notes_apply(gw_agent_t *agent);
