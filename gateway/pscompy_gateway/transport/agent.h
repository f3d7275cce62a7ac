/* The pseudo-transport's own structures: one agent per session that uses it,
 * paths to gateways, endpoints, packets.
 *
 * The agent has a session of its own to the gateways, whose fabric carries the
 * packets. Everything here runs in calls of the contract, so with the lock of
 * the session that the transport belongs to; the exception are gw_agent_*,
 * which the Python half calls: they leave a note that progress reads. */
#ifndef GATEWAY_AGENT_H
#define GATEWAY_AGENT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "pscompy/core/api.h"
#include "pscompy/transport/kit/list.h"
#include "pscompy/transport/kit/reorder.h"
#include "pscompy/transport/kit/token_proof.h"
#include "../wire.h"

#define GW_PATHS_MAX 32u
#define GW_NAME_MAX 256u
#define GW_TOKENS_MAX 4096u
#define GW_IOV_MAX 8u
#define GW_ENDPOINTS_MAX (1u << 24)
#define GW_PATCH 1024u /* room for small packets, which are kept for reuse */

typedef struct gw_agent gw_agent_t;
typedef struct gw_ep gw_ep_t;

/* A gateway that is, or was, connected. */
typedef struct gw_path {
    psc_conn_t *conn; /* NULL: it is down */
    char name[GW_NAME_MAX];
    uint64_t inflight; /* bytes on their way through it, not acknowledged */
    uint64_t others;   /* what it says it carries beside them */
    uint32_t streams;  /* pairs of processes that talk through it, it says */
    uint64_t sent_packets, sent_bytes;
    uint32_t eps; /* whose home it is */
} gw_path_t;

/* A zero-copy send: its packets point into the caller's buffers. */
typedef struct gw_op {
    psc_link_t link; /* of those not cut into packets entirely */
    psc_comp_t *comp;
    gw_message_t message;
    uint8_t header[PSC_AM_HEADER_MAX];
    psc_iov_t iov[GW_IOV_MAX];
    size_t n_iov;
    uint64_t cut;     /* bytes that are in packets */
    uint32_t packets; /* that still refer to it */
    psc_status_t status;
} gw_op_t;

typedef struct gw_packet {
    psc_link_t link; /* endpoint's unacked, agent's leaving, or free ones */
    gw_head_t head;
    gw_agent_t *agent;
    gw_ep_t *ep; /* NULL: nobody waits for an acknowledgement of it */
    gw_op_t *op; /* its payload is there, from `offset` on; else in data */
    uint64_t offset;
    uint32_t len;   /* of all that follows the head */
    uint32_t clock; /* the endpoint's, when it was last sent */
    uint32_t refs;  /* not acknowledged, and requests under way */
    uint8_t path;   /* last sent on */
    bool small;     /* of GW_PATCH bytes */
    bool waiting;   /* to be sent, again perhaps */
    uint8_t data[];
} gw_packet_t;

typedef enum gw_stage {
    GW_EP_NEW,     /* what arrives waits for ep_connect */
    GW_EP_PROVING, /* the token proof is in progress */
    GW_EP_UP,
    GW_EP_CLOSING, /* what was sent goes out */
    GW_EP_ENDED
} gw_stage_t;

struct gw_ep {
    psc_ep_t super;
    psc_link_t link, due_link; /* agent's eps; those that owe something */
    gw_stage_t stage;
    bool ack_now, owes, freed;
    bool hello_due; /* connector: not sent yet, routes may still be told */
    uint64_t id;
    uint64_t peer_node, peer_ep;
    uint16_t peer_module;
    psc_proof_t proof; /* of the token; begun by ep_connect */
    /* out */
    psc_list_t unacked; /* packets in order */
    psc_list_t ops;     /* not cut entirely, in order */
    uint32_t next, acked, limit, clock;
    uint32_t n_ops, waiting;
    uint64_t kept; /* bytes of copies that are not acknowledged */
    /* in */
    psc_reorder_t order; /* packets until their turn, as many as tokens */
    uint32_t unanswered;
    psc_dest_t dest;       /* of the message at hand */
    uint64_t begun, left;  /* bytes of it that came, and that are missing */
    bool taking;
    /* ways */
    uint32_t home;        /* path */
    uint32_t unreachable; /* paths that do not lead there, as bits */
    uint32_t ticks;       /* without an acknowledgement that was awaited */
    uint32_t stranded;    /* ticks without any way */
    uint32_t last_acked;
};

/* What the Python half tells. */
typedef struct gw_note {
    struct gw_note *next;
    int kind; /* gw_note_kind_t */
    uint32_t path;
    psc_conn_t *conn;
    uint64_t node, load;
    uint32_t streams;
    char name[GW_NAME_MAX];
} gw_note_t;

typedef enum gw_note_kind {
    GW_NOTE_UP,    /* a path leads to a gateway */
    GW_NOTE_DOWN,  /* it does no more */
    GW_NOTE_LOST,  /* a node is gone, as all gateways say */
    GW_NOTE_ROUTE, /* a node is reached by this path alone */
    GW_NOTE_LOAD,  /* a gateway has told what it carries */
    GW_NOTE_TICK
} gw_note_kind_t;

/* A node with a path of its own, by the route file. */
typedef struct gw_route {
    psc_link_t link;
    uint64_t node;
    uint32_t path;
} gw_route_t;

struct gw_agent {
    psc_iface_t super;
    const psc_api_t *api;
    psc_worker_t *worker; /* of the session to the gateways */
    psc_sleeper_t *sleeper; /* on whose descriptor the session above sleeps */
    uint64_t node;
    uint16_t module;
    uint32_t mtu, tokens, pending;
    uint64_t window;
    gw_path_t paths[GW_PATHS_MAX];
    psc_list_t eps, due, graveyard;
    psc_list_t free_packets, leaving; /* packets that nobody else lists */
    psc_list_t routes;
    gw_ep_t **table; /* endpoints by the low bits of their id */
    uint32_t table_size, n_eps, n_free;
    unsigned handled;
    bool open, in_progress, holding;
    atomic_uint unsettled; /* endpoints with something not acknowledged */
    _Atomic(gw_note_t *) notes;
    uint64_t resent, duplicates;
};

static inline gw_agent_t *gw_agent_of(const gw_ep_t *ep)
{
    return (gw_agent_t *)ep->super.iface;
}

static inline gw_head_t gw_head_to_peer(const gw_ep_t *ep, gw_kind_t kind)
{
    const gw_agent_t *agent = gw_agent_of(ep);

    return (gw_head_t){.kind = kind,
                       .to_module = ep->peer_module,
                       .from_module = agent->module,
                       .to_node = ep->peer_node,
                       .from_node = agent->node,
                       .to_ep = ep->peer_ep,
                       .from_ep = ep->id};
}

/* ---- packets.c ---- */

gw_packet_t *gw_packet_create(gw_agent_t *agent, gw_ep_t *ep, size_t room);
void gw_packet_drop(gw_packet_t *packet);
/* Give it to a gateway. NO_RESOURCE: there is none for it now. */
psc_status_t gw_packet_send(gw_packet_t *packet, gw_path_t *path);
/* A packet of nothing but a head, which nobody acknowledges; `number` is of the
 * way that it is about. */
void gw_packet_signal(gw_ep_t *ep, gw_path_t *path, gw_kind_t kind,
                      uint8_t number, uint32_t mark);
void gw_packets_finished(gw_agent_t *agent);
void gw_packets_destroy(gw_agent_t *agent);

/* ---- paths.c ---- */

/* The path for the next packet; NULL: none. */
gw_path_t *gw_path_choose(gw_ep_t *ep, size_t len);
void gw_path_settle(gw_ep_t *ep);
uint32_t gw_path_usable(const gw_ep_t *ep);
/* It has no home any more; the next packet chooses one. */
void gw_path_leave(gw_ep_t *ep);
void gw_path_notes(gw_agent_t *agent);
void gw_path_names(const gw_agent_t *agent, char *text, size_t room);

/* ---- out.c ---- */

psc_status_t gw_am_bcopy(psc_ep_t *ep, uint8_t id, const void *header,
                         uint8_t header_len, const psc_iov_t *iov,
                         size_t n_iov);
psc_status_t gw_am_zcopy(psc_ep_t *ep, uint8_t id, const void *header,
                         uint8_t header_len, const psc_iov_t *iov,
                         size_t n_iov, psc_comp_t *comp);
/* A numbered packet without a message. */
psc_status_t gw_out_control(gw_ep_t *ep, uint8_t flags, const void *data,
                            size_t len);
/* Acknowledged up to `ack`, and numbers below `limit` may go. */
void gw_out_heard(gw_ep_t *ep, uint32_t ack, uint32_t limit);
/* Send what waits. */
void gw_out_flush(gw_ep_t *ep);
/* Everything sent on these paths, before `clock` if `some`, goes again. */
void gw_out_again(gw_ep_t *ep, uint32_t paths, bool some, uint32_t clock);
/* Forget what was not acknowledged; its completions get the status. */
void gw_out_abandon(gw_ep_t *ep);
void gw_op_release(gw_op_t *op);
void gw_out_tick(gw_ep_t *ep);

/* ---- in.c ---- */

void gw_in_take(gw_agent_t *agent, psc_message_t *message);
void gw_in_deliver(gw_ep_t *ep);
void gw_in_forget(gw_ep_t *ep);
/* Acknowledgements that are due. */
void gw_in_answer(gw_agent_t *agent);

/* ---- ep.c ---- */

psc_status_t gw_ep_create(psc_iface_t *iface, void *user, psc_ep_t **ep_p);
psc_status_t gw_ep_address(psc_ep_t *ep, uint8_t *address, size_t *len_p);
psc_status_t gw_ep_connect(psc_ep_t *ep, const psc_connect_params_t *params);
void gw_ep_close(psc_ep_t *ep);
psc_status_t gw_ep_stop(psc_ep_t *ep);
void gw_ep_fini(psc_ep_t *ep);
gw_ep_t *gw_ep_find(gw_agent_t *agent, uint64_t id);
/* From progress: it broke. */
void gw_ep_fail(gw_ep_t *ep, psc_status_t status, const char *reason);
/* It has something to do before progress ends. */
void gw_ep_due(gw_ep_t *ep);
/* Send the connector's hello, if it is due. */
void gw_ep_greet(gw_ep_t *ep);
/* From progress: a message of the token proof has arrived. */
void gw_ep_take_proof(gw_ep_t *ep, unsigned kind, const uint8_t *body,
                      size_t len);
void gw_ep_free_dead(gw_agent_t *agent);

/* ---- for Python ---- */
/* CDEF BEGIN */

typedef struct gw_agent_counters {
    uint64_t sent_packets, sent_bytes, resent, duplicates, unsettled;
} gw_agent_counters_t;

uintptr_t pscompy_gateway_transport(void);
/* api: address of the psc_api_t; worker: of a session's worker. */
gw_agent_t *gw_agent_create(uintptr_t api, uintptr_t worker, uint64_t node,
                            uint32_t module);
/* After the transport was closed. */
void gw_agent_destroy(gw_agent_t *agent);
uintptr_t gw_agent_handle(gw_agent_t *agent);
/* What has become of path `path`, or of a node; see gw_note_kind_t. */
int gw_agent_note(gw_agent_t *agent, int kind, uint32_t path, uintptr_t conn,
                  uint64_t node, const char *name);
/* The gateway of a path carries so many bytes, for so many pairs. */
int gw_agent_load(gw_agent_t *agent, uint32_t path, uint64_t load,
                  uint32_t streams);
/* Whether somebody waits for an acknowledgement. */
int gw_agent_unsettled(gw_agent_t *agent);
void gw_agent_count(gw_agent_t *agent, gw_agent_counters_t *counters);
/* CDEF END */

#endif
