/* The functions for the control plane (Python): workers, transports,
 * connections and lanes. They are called rarely, through cffi; each takes the
 * worker's lock itself. The text between the CDEF marks is read by build.py. */
#ifndef PSCOMPY_CORE_CONTROL_H
#define PSCOMPY_CORE_CONTROL_H

#include "api.h"

typedef struct psc_lane psc_lane_t;

/* CDEF BEGIN */
typedef enum psc_lane_state {
    PSC_LANE_NEW,
    PSC_LANE_CONNECTING,
    PSC_LANE_UP,
    PSC_LANE_FAILED
} psc_lane_state_t;

typedef enum psc_rndv_scheme {
    PSC_RNDV_AUTO,
    PSC_RNDV_PUT,
    PSC_RNDV_GET,
    PSC_RNDV_AM
} psc_rndv_scheme_t;

/* length of the secret of psc_worker_secret in bytes */
#define PSC_SECRET_SIZE 16

typedef struct psc_worker_config {
    uint32_t index;             /* index of the worker in its session */
    /* how long a waiting thread polls before it sleeps, in ns */
    int64_t spin_ns;
    /* Bytes of unexpected eager payload to keep before credits are withheld. */
    uint64_t unexpected_max;
    /* Maximum number of bytes of eager payload that one connection may have in
     * flight. */
    uint64_t eager_window;
    /* maximum number of RTSs of a connection that the peer has not answered;
     * well below PSC_RTS_LIMIT (proto/rndv.h) */
    uint32_t rts_max;
    /* maximum size in bytes of the pool of memory that can be lent to peers; 0:
     * no lending */
    uint64_t pool_max;
    /* Length of the shortest receive that peers may see and claim, and of the
     * shortest message that claims a receive (proto/tuple.h). 0: no receive is
     * claimed. */
    uint64_t tuple_min;
    /* If the transport cannot advertise to peers the receives that they may
     * claim, the core announces these receives by messages (proto/tuple.h).
     * Not used if tuple_min is 0. */
    bool tuple_am;
} psc_worker_config_t;

/* Protocol parameters of one connection, chosen by the cost model. */
typedef struct psc_proto_params {
    /* length of the longest eager message; longer messages go by rendezvous */
    uint64_t eager_max;
    /* length of the shortest eager message that is sent without a copy */
    uint64_t zcopy_min;
    psc_rndv_scheme_t scheme;
    /* Messages that are longer than eager_max, up to this length, are sent
     * eagerly now and then, so that their time is known, too; 0: none is. */
    uint32_t try_max;
    uint64_t fragment; /* maximum length of one FRAG, put or get */
} psc_proto_params_t;

/* Sums over the long messages that were timed as they arrived by copies, or by
 * gets. */
typedef struct psc_moved {
    uint64_t messages, bytes, ns;
    uint64_t fastest; /* ns per KiB of the fastest of these messages */
} psc_moved_t;

typedef enum psc_control_kind {
    PSC_CONTROL_LANE, /* lane `id` is up or has failed; see psc_lane_state */
    /* connection `id` ends or has ended (psc_conn_state), has timed enough
     * messages (psc_conn_rates), or is to be connected (conn_open of psc_api_t)
     */
    PSC_CONTROL_CONN,
    /* psc_conn_call_state of the connection to rank `id` has changed */
    PSC_CONTROL_CALL,
    /* rank `id` calls this rank, and there is no connection to it here
     * (psc_worker_callers_poll) */
    PSC_CONTROL_CALLER
} psc_control_kind_t;

/* How far two ranks of a job have connected by a call (psc_conn_call). */
typedef enum psc_call_state {
    PSC_CALL_NONE,
    PSC_CALL_CALLING,
    PSC_CALL_CALLED, /* the peer's side of the connection may be up already */
    PSC_CALL_UP, /* the connection is up, and owns the lane of the call */
    PSC_CALL_FAILED
} psc_call_state_t;

typedef struct psc_control_event {
    psc_control_kind_t kind;
    uint64_t id;
} psc_control_event_t;

/* The kinds before MESSAGE are those of psc_req_kind_t. */
typedef enum psc_item_kind {
    PSC_ITEM_SEND,
    PSC_ITEM_RECV,
    PSC_ITEM_PROBE,
    PSC_ITEM_EVENT,
    PSC_ITEM_LOAN,
    PSC_ITEM_COLLECTIVE,
    PSC_ITEM_MESSAGE
} psc_item_kind_t;

/* A request that is not done, or a message without a receive. */
typedef struct psc_item {
    psc_item_kind_t kind;
    uintptr_t request; /* address of the psc_request_t; 0 for a message */
    uint64_t id; /* id of the request; no other request of the worker has it */
    uint64_t conn; /* id of the peer's connection; 0: any source, or none */
    int32_t rank; /* rank of the peer; -1: any, none, or outside a World */
    uint32_t context;
    int32_t tag;
    uint64_t nbytes;
    int awaited; /* a thread waits for the request */
    const char *state; /* what the request waits for, in words; may be empty */
} psc_item_t;

/* The messages of a connection that were announced by RTS and have no receive
 * yet. */
typedef struct psc_announced {
    uint32_t sent; /* messages to the peer, which has not answered */
    uint32_t arrived; /* messages from the peer */
    /* later messages wait until the receiver has taken some of those: here,
     * because `sent` has reached psc_worker_config_t.rts_max; at the peer */
    bool waits, peer_waits;
} psc_announced_t;

/* ---- workers ---- */
/* Create a worker. Returns NULL with errno if memory or descriptors are short.
 */
psc_worker_t *psc_worker_create(const psc_worker_config_t *config);
/* Fail all connections, close the transports, free the worker. No other thread
 * may be inside a call, and no request or connection may be used afterwards.
 * Returns the number of requests and regions that a peer may still write to,
 * because it has not answered for seconds and its process is alive: their
 * memory must never be reused. */
unsigned psc_worker_destroy(psc_worker_t *worker);
/* Start the core's progress thread, which moves messages when the program has
 * made no call for `patience_ns`. Call it after all transports are open. The
 * thread ends with the worker, and does not exist after fork. A worker that has
 * one refuses a second (PSC_ERR_INVALID). */
int psc_worker_thread_start(psc_worker_t *worker, int64_t patience_ns);
/* Call in the child after fork: all later calls return PSC_ERR_FORKED and
 * change nothing. */
void psc_worker_forked(psc_worker_t *worker);
/* Open a transport. ops: address of a psc_transport_ops_t that outlives the
 * worker; path: 0, or less than the attribute `paths` of path 0. Returns the
 * interface's index, or a status with `reason` (PSC_REASON_MAX bytes). */
int psc_worker_open(psc_worker_t *worker, uintptr_t ops, uint32_t path,
                    const psc_setting_t *settings, uint32_t n_settings,
                    char *reason);
void psc_worker_query(psc_worker_t *worker, int iface,
                      psc_iface_attr_t *attr_p);
/* The function `descriptor` of psc_api_t. */
int psc_worker_fd(psc_worker_t *worker);
/* The control thread's sleeper (progress/progress.h), which drives the fabrics
 * while lanes are created and retired. It is woken for arriving messages, for
 * queued work, and if a pass of another thread leaves more to do, but not for
 * finished requests.
 * psc_worker_progress is its progress function, for the control thread only. */
int psc_worker_fabric_fd(psc_worker_t *worker);
int psc_worker_arm_fabric(psc_worker_t *worker);
unsigned psc_worker_progress(psc_worker_t *worker);
/* End all calls of psc_api_t.wait with PSC_ERR_INTERRUPTED. */
void psc_worker_wake(psc_worker_t *worker);
/* Returns true while lanes are retiring. The fabric releases them only in
 * progress, so a thread must drive progress until there are none. control_fd
 * becomes readable when a lane begins to retire. */
int psc_worker_retiring(psc_worker_t *worker);
/* Returns true while transports hold sent messages for want of room, calls are
 * in flight, or psc_worker_callers_poll has events. Such messages and calls go
 * on only in progress. *passes_p: the number of passes until now, so that the
 * caller can see whether any thread makes passes. *attended_p: true if a thread
 * waits that will make passes. control_fd becomes readable when the result
 * becomes true, and again only after this function has returned 0. */
int psc_worker_holding(psc_worker_t *worker, uint32_t *passes_p,
                       int *attended_p);
/* Returns a descriptor that is readable while psc_worker_control_poll has
 * events. */
int psc_worker_control_fd(psc_worker_t *worker);
int psc_worker_control_poll(psc_worker_t *worker, psc_control_event_t *events,
                            int max);
/* Like psc_worker_control_poll, but returns the calls (psc_conn_call) that have
 * begun or come up since psc_worker_calls_poll was last called. They do not
 * make control_fd readable, because most of them need no action of the control
 * plane. If a call was returned here while it was in flight, its later events
 * are returned by psc_worker_control_poll; so is the failure of any call. */
int psc_worker_calls_poll(psc_worker_t *worker, psc_control_event_t *events,
                          int max);
/* As psc_worker_control_poll, for ranks that call this rank and to which there
 * is no connection: the control plane creates a connection and calls that rank,
 * too. It calls this function only a moment after control_fd has become
 * readable, because most programs are about to create the connection
 * themselves. */
int psc_worker_callers_poll(psc_worker_t *worker, psc_control_event_t *events,
                            int max);
/* Counters: their names, and their values for a worker or one connection. */
int psc_counter_count(void);
const char *psc_counter_name(int index);
void psc_worker_counters(psc_worker_t *worker, uint64_t *values);
void psc_conn_counters(psc_conn_t *conn, uint64_t *values);
/* Contents of the caches and pools of a worker and its transports now. Fills in
 * at most `capacity`; returns the number. Each call visits all requests and
 * connections, so call it only now and then. */
uint32_t psc_worker_holdings(psc_worker_t *worker, psc_counted_t *counted,
                             uint32_t capacity);
/* The transports' own counters of a connection that is up; several lanes yield
 * the same names repeatedly. Fills in at most `capacity`; returns the number.
 * */
uint32_t psc_conn_fabric_counters(psc_conn_t *conn, psc_counted_t *counters,
                                  uint32_t capacity);
/* Set the secret that only the processes of a job share: packed regions carry a
 * hash under it, so that they cannot be altered or forged. Call it before the
 * first psc_memory_pack. */
void psc_worker_secret(psc_worker_t *worker, const uint8_t *secret);
void psc_worker_log_to(psc_worker_t *worker, int fd, int level);
/* Describe the worker's requests and unmatched messages. Fills in at most
 * `capacity` items; returns how many there are. */
uint32_t psc_worker_items(psc_worker_t *worker, psc_item_t *items,
                          uint32_t capacity);
/* End the receive or probe of this id (psc_item_t) with the status, if it is
 * from any source and no message has matched it. */
void psc_worker_end_receive(psc_worker_t *worker, uint64_t id, int status);

/* ---- contexts of Worlds ----
 *
 * Numbers are allocated in pairs, an even one and the next, in ascending order,
 * and never again. Messages whose number is not open yet are kept, because the
 * peer may have opened it already. */
/* Open the contexts of this pair of numbers, in all classes. Lower numbers that
 * are not open can never be opened. Returns PSC_ERR_NO_MEMORY if memory is
 * short. */
int psc_worker_open_context(psc_worker_t *worker, uint32_t number);
/* Close the contexts of this pair of numbers, and free their queues: receives
 * and probes end with PSC_ERR_CLOSED. Messages that have arrived, or arrive
 * later, are dropped; the sends of those that were only announced end with
 * PSC_ERR_CLOSED. Receives that have matched a message, and sends, go on. */
void psc_worker_close_context(psc_worker_t *worker, uint32_t number);

/* ---- lanes: one endpoint of one transport ---- */
psc_lane_t *psc_lane_create(psc_worker_t *worker, int iface, uint64_t id);
int psc_lane_address(psc_lane_t *lane, uint8_t *address, size_t *len_p);
/* spare: the connection will go on if it loses this lane. */
int psc_lane_connect(psc_lane_t *lane, int spare, int role,
                     const uint8_t *token, const uint8_t *address, size_t len);
int psc_lane_state(psc_lane_t *lane);
/* For a lane that is up: returns PSC_OK if the fabric matches its messages.
 * Otherwise returns PSC_ERR_UNSUPPORTED; reason (PSC_REASON_MAX bytes) may have
 * an explanation. */
int psc_lane_matching(psc_lane_t *lane, char *reason);
/* Copy into reason (PSC_REASON_MAX bytes) why the lane failed. */
void psc_lane_reason(psc_lane_t *lane, char *reason);
/* Destroy a lane that was not installed; an installed lane is destroyed with
 * its connection. */
void psc_lane_destroy(psc_lane_t *lane);

/* ---- calls: ranks of a job on one node connect without the control plane ----
 */
/* Let this rank connect to other ranks by calls over this interface. The other
 * ranks join with the same key (PSC_TOKEN_SIZE bytes). Connections that come up
 * by a call have these parameters. Returns a descriptor that is readable while
 * a rank calls or the process of one has ended, or a status. */
int psc_worker_join(psc_worker_t *worker, int iface, const uint8_t *key,
                    int rank, const psc_proto_params_t *params);
/* Undo psc_worker_join: from now on no rank can be called, and calls of other
 * ranks are refused. */
void psc_worker_part(psc_worker_t *worker);
/* LAZY -> CONNECTING: call the connection's rank. When the call begins, comes
 * up or fails, an event PSC_CONTROL_CALL is posted (psc_worker_calls_poll).
 * When its lane is up, the connection becomes UP without the control plane.
 * Does nothing if the rank is being called, or the connection is UP. Returns an
 * error, and changes nothing, if the rank cannot be called, or the connection
 * has begun to connect before; then the connection needs a precon of the
 * control plane. With PSC_FLAG_TRY psc_conn_call never waits. */
int psc_conn_call(psc_conn_t *conn, uint32_t flags);
/* Returns a psc_call_state_t. *process_p: the id of the peer's process, or 0 if
 * it is not known. */
int psc_conn_call_state(psc_conn_t *conn, int *process_p);
/* Give up a call (psc_conn_call) that has not come up: drop its lane. The
 * connection stays CONNECTING. */
void psc_conn_hang_up(psc_conn_t *conn);

/* ---- connections ---- */
/* Create a LAZY connection. `needs_precon`: the connection needs a precon of
 * the control plane, and its rank is never called (psc_conn_call). Returns NULL
 * if no memory is left. */
psc_conn_t *psc_conn_create(psc_worker_t *worker, uint64_t id, int rank,
                            bool needs_precon);
/* Let the connection be the one with this rank, whose calls it answers from now
 * on. For a connection that was created with rank -1: of several that are made
 * for one rank at once, the control plane keeps one. */
void psc_conn_set_rank(psc_conn_t *conn, int rank);
int psc_conn_state(const psc_conn_t *conn);
void psc_conn_announced(psc_conn_t *conn, psc_announced_t *announced);
/* Returns the id of a connection whose peer_waits (psc_announced_t) is set, or
 * 0. */
uint64_t psc_worker_peer_waits(psc_worker_t *worker);
/* Change the connection's state from LAZY (also after connecting has failed) to
 * CONNECTING. */
int psc_conn_connecting(psc_conn_t *conn);
/* CONNECTING -> UP: the lanes carry messages from now on. Lane 0 carries all
 * messages that are matched, until it is lost; the others help with large
 * data. */
int psc_conn_install(psc_conn_t *conn, psc_lane_t **lanes, uint32_t n_lanes,
                     const psc_proto_params_t *params);
/* Take the sums over the timed messages: those that arrived by copies, and
 * those that this side received by get. Both are 0 until so many messages were
 * timed that the control plane was notified. Then twice as many messages are
 * timed before it is notified again. */
void psc_conn_rates(psc_conn_t *conn, psc_moved_t *copies, psc_moved_t *gets);
/* Use these protocol parameters for the messages that are sent from now on. */
void psc_conn_adapt(psc_conn_t *conn, const psc_proto_params_t *params);
/* End all outstanding operations with the status. A CONNECTING connection that
 * fails with PSC_ERR_CONNECT becomes LAZY again. */
void psc_conn_fail(psc_conn_t *conn, int status);
/* The precon (between the control planes) has reported the end of the
 * peer's process: deliver what has arrived, then fail the connection with
 * PEER_LOST, or with CLOSED if its CLOSE was sent. Returns PSC_INPROGRESS if
 * more may be in flight, and the main lane will report the peer's end: call
 * again, with `last` true after the grace period, because a child of the peer
 * may keep the peer's stream open. */
int psc_conn_peer_ended(psc_conn_t *conn, int last);
/* Returns 1 if one of the lanes has failed, and the connection is going to
 * fail. */
int psc_conn_lane_lost(psc_conn_t *conn);
/* Returns 1 if the connection has lost this lane and goes on without it.
 * reason (PSC_REASON_MAX bytes): why the lane failed. */
int psc_conn_rail_lost(psc_conn_t *conn, uint32_t lane, char *reason);
/* Begin to connect a new lane in place of this one, which the connection has
 * lost. Returns PSC_ERR_NO_RESOURCE if the fabric has not released the lost
 * lane on both sides yet, or the connection is not UP. */
int psc_conn_join_begin(psc_conn_t *conn, uint32_t lane);
/* Put the new lane `joined`, which is up, into the place of the lost lane. The
 * new lane is used once the peer has done the same. Returns PSC_ERR_INVALID if
 * the connection is not UP any more, and PSC_ERR_UNSUPPORTED if the new lane
 * takes shorter messages than the lost one, or cannot be replaced as the others
 * can; then the lane stays with the caller. */
int psc_conn_join(psc_conn_t *conn, uint32_t lane, psc_lane_t *joined);
/* Call if the new lane of psc_conn_join_begin has not come up;
 * psc_conn_join_begin may be called again. */
void psc_conn_join_fail(psc_conn_t *conn, uint32_t lane);
/* Copy the transport's reason why the connection failed into `text`
 * (PSC_REASON_MAX bytes). The text is empty if the transport gave no reason. */
void psc_conn_reason(psc_conn_t *conn, char *text);
/* Keep a copy of what the control plane says about the connection's failure,
 * for conn_error of psc_api_t; "": nothing has failed. */
void psc_conn_set_error(psc_conn_t *conn, const char *text);
/* UP -> CLOSING: refuse new sends, send the queued ones, then notify the peer;
 * CLOSED when the peer has acknowledged. LAZY or CONNECTING -> CLOSED at
 * once. */
void psc_conn_close(psc_conn_t *conn);
/* Destroy a connection with its unreceived messages; neither the connection nor
 * its id may be used afterwards. Its memory is freed when its lanes, its
 * requests and the active messages from it have been freed. */
void psc_conn_destroy(psc_conn_t *conn);

/* ---- memory that peers may write and read: region_* of psc_api_t ---- */
int psc_memory_register(psc_worker_t *worker, void *base, size_t len,
                        psc_region_t **region_p);
/* Returns PSC_INPROGRESS if a peer still accesses the memory; call it again a
 * little later. */
int psc_memory_deregister(psc_region_t *region);
int psc_memory_pack(psc_region_t *region, uint8_t *packed, size_t *len_p);

/* ---- memory that is registered once, not for each message ---- */
int psc_memory_pin(psc_worker_t *worker, void *base, size_t len,
                   psc_block_t **block_p);
void psc_memory_unpin(psc_worker_t *worker, psc_block_t *block);

/* Returns the address of the psc_api_t, for the binding. */
uintptr_t psc_api_address(void);
/* CDEF END */

#endif
