/* The core's calls to the protocols above it; the core makes no other calls to
 * them. The protocols fill in the table (proto/protocols.c), psc_worker_create
 * registers it, and the core calls it as worker->up. With the worker's lock
 * held. */
#pragma once

#include "types/connection.h"

/* The core's calls to the engine of collectives, which psc_group_create
 * registers in worker->runs. */
struct psc_engine {
    /* Continue the runs that can go on. Returns how many have. */
    unsigned (*advance)(psc_worker_t *worker);
    /* The connection is being freed. */
    void (*conn_freed)(psc_conn_t *conn);
    /* The contexts of a number, and so those of its group, are being closed:
     * end the group's runs with PSC_ERR_CLOSED. */
    void (*context_closed)(psc_worker_t *worker, uint32_t number);
    /* Returns the reason for which a message of a closed context is refused:
     * PSC_ERR_PEER_LOST if its group has lost a rank, which the peer is told
     * apart, else PSC_ERR_CLOSED. */
    psc_status_t (*refusal)(psc_worker_t *worker, uint32_t context);
    /* Free all groups and their runs. */
    void (*worker_ends)(psc_worker_t *worker);
};

struct psc_upward {
    /* ---- messages and requests ---- */

    /* Handle a message that a lane delivers. After an error the connection is
     * ended (psc_lane_break). */
    psc_status_t (*arrived)(psc_lane_t *lane, const psc_am_t *am);
    /* The payload of a message begins to arrive; lane->incoming has the
     * message's id and lengths. */
    void (*begin)(psc_lane_t *lane, const void *header, psc_dest_t *dest);
    psc_status_t (*end)(psc_lane_t *lane);
    /* Advance a request as far as possible: until it waits for the peer or the
     * fabric, is done, or (PSC_ERR_NO_RESOURCE) must be tried again later. */
    psc_status_t (*advance)(psc_req_t *req);

    /* ---- control messages ---- */

    /* Send CREDIT, CLOSE, CLOSE_ACK, or LANE_DOWN or LANE_UP for the first lane
     * for which it is due. Returns false if the main lane is full. */
    bool (*send_control)(psc_conn_t *conn, psc_wire_id_t id);
    /* Send the FINs of the requests in conn->work.fins. Returns true if any
     * request was ended. */
    bool (*send_fins)(psc_conn_t *conn);

    /* Send what conn->lost.replay_due stands for: messages again over a new
     * main lane, and SEEN, CONCEAL or CONCEALED messages. Returns true if
     * anything was sent. */
    bool (*replay)(psc_conn_t *conn);

    /* ---- a connection ---- */

    /* Set the parameters that both sides agreed on, within the protocols'
     * limits. */
    void (*conn_params)(psc_conn_t *conn, const psc_proto_params_t *params);
    /* The connection's lanes are known, and nothing has arrived over them yet.
     * Returns false if there is no memory. */
    bool (*conn_lanes)(psc_conn_t *conn);
    /* A spare lane was lost: nothing arrives over it from now on. If no lane is
     * left that could carry messages, the connection ends. */
    void (*lane_lost)(psc_lane_t *lane);
    /* The fabric has released a spare lane that was lost. */
    void (*lane_sealed)(psc_lane_t *lane);
    /* The connection's lanes are installed, and the messages that arrived
     * before were delivered. */
    void (*conn_up)(psc_conn_t *conn);
    /* End all outstanding operations with the status. Messages that have
     * arrived completely may still be received. */
    void (*conn_ended)(psc_conn_t *conn, psc_status_t status);
    /* End the posted receives and probes that name the connection. */
    void (*receives_ended)(psc_conn_t *conn, psc_status_t status);
    /* Refuse the announced messages that the connection, which is closing here,
     * will not receive. Returns true if anything was sent. */
    bool (*refuse)(psc_conn_t *conn);
    /* The connection's CLOSE is about to be sent. */
    void (*conn_closing)(psc_conn_t *conn);
    /* Returns true if the connection has sends that are not complete, or
     * receives whose messages are still arriving. */
    bool (*transfers_pending)(const psc_conn_t *conn);
    /* Free the connection's unreceived messages. */
    void (*conn_destroy)(psc_conn_t *conn);
    /* Free what the protocols still keep for a connection without lanes. */
    void (*conn_freed)(psc_conn_t *conn);

    /* ---- a worker ---- */

    /* Handle the posted active messages and released views that other threads
     * have queued without the lock. */
    void (*inbox_drain)(psc_worker_t *worker);
};
