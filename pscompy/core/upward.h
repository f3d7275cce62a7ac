/* What the core asks of the protocols above it: the only calls upward. The
 * protocols fill in the table (proto/protocols.c), psc_worker_create registers
 * it, and everybody calls it as worker->up. With the worker's lock held. */
#ifndef PSCOMPY_CORE_UPWARD_H
#define PSCOMPY_CORE_UPWARD_H

#include "types/conn.h"

struct psc_upward {
    /* ---- what moves ---- */

    /* Dispatch of what a lane delivers. An error breaks the lane. */
    psc_status_t (*arrived)(psc_lane_t *lane, const psc_am_t *am);
    void (*begin)(psc_lane_t *lane, uint8_t id, const void *header,
                  uint8_t header_len, uint64_t len, psc_dest_t *dest);
    psc_status_t (*end)(psc_lane_t *lane);
    /* Move a request as far as it goes: until it waits for the peer or the
     * fabric, is done, or (NO_RESOURCE) must be tried again later. */
    psc_status_t (*advance)(psc_req_t *req);

    /* ---- control messages ---- */

    /* CREDIT, CLOSE or CLOSE_ACK; false: the lane takes nothing now. */
    bool (*send_control)(psc_conn_t *conn, psc_wire_id_t id);
    /* The FINs that can leave together; true if any left. */
    bool (*send_fins)(psc_conn_t *conn);

    /* ---- beginnings and ends of a connection ---- */

    void (*conn_init)(psc_conn_t *conn);
    /* What the two sides agreed on, within what the protocols can do. */
    void (*conn_params)(psc_conn_t *conn, const psc_proto_params_t *params);
    /* Its lanes are known, and nothing has arrived over them yet. */
    void (*conn_lanes)(psc_conn_t *conn);
    /* Its lanes are installed. */
    void (*conn_up)(psc_conn_t *conn);
    /* Everything that it has outstanding ends with the status; messages that
     * have arrived whole may still be received. */
    void (*conn_ended)(psc_conn_t *conn, psc_status_t status);
    /* The posted receives and probes that name it end. */
    void (*receives_ended)(psc_conn_t *conn, psc_status_t status);
    /* Its CLOSE is about to leave. */
    void (*conn_closing)(psc_conn_t *conn);
    /* Is there anything that the peer has still to be sent? */
    bool (*sends_pending)(const psc_conn_t *conn);
    /* Unreceived messages go. */
    void (*conn_destroy)(psc_conn_t *conn);

    /* ---- a worker ---- */

    /* What other threads left for the holder of the lock. */
    void (*inbox_drain)(psc_worker_t *worker);
};

#endif
