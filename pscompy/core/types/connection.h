/* A connection to one peer, over one or more lanes. */
#pragma once

#include "lane.h"
#include "work.h"

/* The messages by which both sides end a connection normally: each side sends
 * CLOSE, or acknowledges the CLOSE of the other side. */
typedef struct psc_closing {
    bool sent, received; /* CLOSE was sent; CLOSE has arrived */
    bool ack_due;        /* CLOSE_ACK is to be sent */
} psc_closing_t;

/* The state of tag matching by the connection's fabric; see proto/tag.h. */
typedef struct psc_tagging {
    /* pause: after a put (tag_put) that met no posted receive, this number of
     * the next long messages is announced by RTS instead; 0 after a put that
     * met one. pause_left: how many of those messages are still to come. */
    uint16_t pause, pause_left;
} psc_tagging_t;

/* Measured durations of the connection's long messages; see proto/rates.h. */
typedef struct psc_rates {
    /* true if messages are timed, to correct cost estimates that the interface
     * has measured (psc_iface_attr_t.measured) */
    bool on;
    /* number of messages sent eagerly although they are longer than eager_max,
     * and how many such messages go by rendezvous before the next */
    uint8_t tried, until_try;
    /* number of messages until now that could have been timed; one of
     * RATES_EVERY (proto/rates.c) is timed */
    uint32_t passed;
    /* the control plane is notified when this many messages were timed */
    uint32_t due;
    uint32_t getting; /* number of messages being received by get */
    psc_moved_t copies, gets;
} psc_rates_t;

/* Puts and gets that are done by messages; see proto/rma.c. */
typedef struct psc_emulated {
    uint32_t out; /* requests to the peer that have not ended */
    uint32_t in; /* requests of the peer that have not ended here */
    /* requests of this side that are sent when others have ended */
    psc_list_t waiting;
} psc_emulated_t;

typedef struct psc_proto psc_proto_t; /* defined in proto/protocol.h */
typedef struct psc_positions psc_positions_t; /* see proto/protocol.h */
typedef struct psc_tuple psc_tuple_t; /* defined in proto/tuple.h */
typedef struct psc_tuple_am psc_tuple_am_t; /* defined in proto/tuple_am.c */
typedef struct psc_replay psc_replay_t; /* defined in proto/replay.c */

/* Lanes that are lost while the connection goes on, and those that take their
 * places, as bits by their indices; see proto/rail.h. */
typedef struct psc_lost {
    uint8_t down_due; /* LANE_DOWN is to be sent for the lane */
    uint8_t sealed; /* the fabric has released the lane on this side */
    uint8_t acked; /* LANE_DOWN has arrived from the peer for the lane */
    /* both sides have lost the lane (its bits in `sealed` and `acked` were
     * set); no new lane is being connected */
    uint8_t gone;
    uint8_t joining; /* a new lane is being connected, and is not used yet */
    uint8_t joined; /* the new lane is installed on this side */
    uint8_t up_due; /* LANE_UP is to be sent for the new lane */
    /* LANE_UP has arrived: the new lane is installed at the peer */
    uint8_t met;
    /* a flag of the whole connection: up->replay has a message to send; see
     * proto/replay.h and proto/tuple.h */
    bool replay_due;
} psc_lost_t;

/* Clear the lane's bit in all members of psc_lost_t except down_due and up_due,
 * because those two messages are still to be sent. */
static inline void psc_lost_forget(psc_lost_t *lost, uint8_t bit)
{
    lost->sealed &= (uint8_t)~bit;
    lost->acked &= (uint8_t)~bit;
    lost->gone &= (uint8_t)~bit;
    lost->joining &= (uint8_t)~bit;
    lost->joined &= (uint8_t)~bit;
    lost->met &= (uint8_t)~bit;
}

struct psc_conn {
    psc_worker_t *worker;
    uint64_t id;
    int rank;
    int state; /* psc_conn_state_t; also read without the lock, atomically */
    psc_lane_t *lanes[PSC_LANES_MAX];
    /* the lane that carries everything that is matched or must stay in order;
     * lane 0, until lane 0 is lost */
    psc_lane_t *main;
    /* how ordered messages leave: over `main`, directly or by `replay` */
    psc_outlet_t out;
    /* length of the longest message, header included, that am_bcopy takes on
     * every lane that may become `main` */
    uint32_t max_bcopy;
    /* length of the shortest receive that is handed out */
    uint32_t hands_from;
    /* NULL unless the connection survives the loss of `main`;
     * proto/replay.h */
    psc_replay_t *replay;
    /* the lane by which the peer is being connected without the control plane
     * (psc_conn_call); NULL once that lane is installed */
    psc_lane_t *call;
    /* psc_conn_call is refused, because the connection needs a precon of the
     * control plane (see psc_conn_create), or because it has begun to
     * connect */
    bool needs_precon;
    /* the control plane was notified that sends waited because of
     * psc_worker_config_t.rts_max */
    bool rts_max_reported;
    /* the fabric matches the connection's messages of the contexts that
     * psc_tag_carries (proto/protocol.h) names */
    bool matches;
    /* a sender looks what has arrived before it sends a long message */
    bool looks_first;
    uint8_t n_lanes;
    /* why the connection ends or has ended (psc_status_t), else PSC_OK */
    int8_t status;
    /* what the control plane says about the last failure (psc_conn_set_error),
     * or NULL */
    char *error;
    /* If the last RTS had the flag PSC_RTS_LAST: rts_in when it arrived. The
     * peer's later messages wait for a receive while rts_in has not fallen
     * below. Else 0. */
    uint32_t rts_in_last;
    psc_tagging_t tagging;
    psc_proto_params_t params;
    psc_flow_t flow;
    psc_work_t work;
    /* of psc_match_queue_t, by context; the worker's table matching.no_queues
     * until the connection has a queue */
    psc_table_t *queues;
    psc_list_t active; /* outstanding requests of the connection */
    psc_list_t maps; /* mapped segments of the peer's pool: lend.c */
    /* number of RTSs sent and arrived, modulo 2^32 */
    uint32_t rts_sent, rts_got;
    /* where the last messages stand; NULL if nobody wants to know */
    psc_positions_t *positions;
    /* number of RTSs to the peer that the peer has not answered yet */
    uint32_t rts_out;
    /* number of RTSs from the peer that no receive here has matched yet */
    uint32_t rts_in;
    psc_emulated_t emulated;
    psc_closing_t closing;
    psc_lost_t lost;
    /* number of active messages from this peer that are queued, or polled and
     * not yet released */
    atomic_uint messages;
    /* the protocol to which receives that name this connection are handed out;
     * NULL: to none */
    const psc_proto_t *hands_out;
    psc_rates_t rates;
    /* NULL unless the peer can see posted receives; proto/tuple.h */
    psc_tuple_t *tuple;
    /* NULL unless posted receives are advertised to the peer by messages;
     * proto/tuple.h */
    psc_tuple_am_t *tuple_am;
    psc_link_t link; /* link in the worker's list conns or ends.doomed */
    /* posted when the connection's state has changed */
    psc_event_slot_t event_slot;
    /* the connection's own counters once it is up; until then it points to
     * worker->unowned */
    psc_counters_t *counters;
};

static inline void psc_count(psc_conn_t *conn, psc_counter_t counter,
                             uint64_t n)
{
    conn->counters->value[counter] += n;
    conn->worker->counters.value[counter] += n;
}

/* Add a request to the connection's outstanding requests. */
static inline void psc_req_attach(psc_req_t *req, psc_conn_t *conn)
{
    psc_req_set_conn(req, conn);
    if (!psc_link_listed(&req->link))
        psc_list_push(&conn->active, &req->link);
}

/* Fill in the source of a result (the connection's id and rank). */
static inline void psc_conn_sign(const psc_conn_t *conn, psc_result_t *result)
{
    result->source = conn->id;
    result->rank = conn->rank;
}

static inline psc_lane_t *psc_conn_main_lane(psc_conn_t *conn)
{
    return conn->main;
}

/* Returns true if the peer has not answered as many RTSs as
 * psc_worker_config_t.rts_max allows, so that later long messages wait. */
static inline bool psc_rts_out_full(const psc_conn_t *conn)
{
    return conn->rts_out >= conn->worker->config.rts_max;
}

/* Returns true if the peer's later messages wait, because as many of its RTSs
 * wait for a receive here as its configuration allows. */
static inline bool psc_rts_in_full(const psc_conn_t *conn)
{
    return conn->rts_in_last > 0 && conn->rts_in >= conn->rts_in_last;
}

/* Returns true if the connection survives the loss of this lane: the bytes that
 * were given to the lane can be moved again over the other lanes. */
static inline bool psc_lane_spare(const psc_lane_t *lane)
{
    return lane->conn && (lane->conn->replay ||
                          (lane->index > 0 && !psc_lane_puts_early(lane)));
}

/* Returns true if the connection can use the lane. A lane that is being joined
 * cannot be used before it is installed on both sides. */
static inline bool psc_lane_works(const psc_lane_t *lane)
{
    return lane->state == PSC_LANE_UP && !lane->closing &&
           !(lane->conn->lost.joining & 1u << lane->index);
}

static inline bool psc_conn_ended(const psc_conn_t *conn)
{
    return conn->state == PSC_CONN_CLOSED || conn->state == PSC_CONN_FAILED;
}
