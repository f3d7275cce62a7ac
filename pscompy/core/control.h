/* What the control plane (Python) calls: workers, transports, connections and
 * lanes. Rare calls, through cffi; each takes the worker's lock itself.
 * The text between the CDEF marks is read by build.py. */
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

#define PSC_SECRET_SIZE 16 /* bytes */

typedef struct psc_worker_config {
    uint32_t index;             /* of the worker in its session */
    int64_t spin_ns;            /* poll for so long before sleeping */
    uint64_t unexpected_max;    /* bytes of unexpected eager payload kept
                                   before credits are withheld */
    uint64_t eager_window;      /* bytes of eager payload one connection may
                                   have in flight, at most */
    uint32_t rts_max;           /* unmatched rendezvous per connection */
    uint64_t pool_max;          /* bytes of memory for lending, 0: none */
} psc_worker_config_t;

/* How one connection's messages travel; chosen by the cost model. */
typedef struct psc_proto_params {
    uint64_t eager_max; /* longest eager message; longer: rendezvous */
    uint64_t zcopy_min; /* shortest eager message sent without copy */
    psc_rndv_scheme_t scheme;
    uint64_t fragment; /* longest FRAG, put or get */
} psc_proto_params_t;

typedef enum psc_control_kind {
    PSC_CONTROL_LANE, /* lane `id` is up or failed: psc_lane_state */
    PSC_CONTROL_CONN /* connection `id` changed: psc_conn_state */
} psc_control_kind_t;

typedef struct psc_control_event {
    psc_control_kind_t kind;
    uint64_t id;
} psc_control_event_t;

/* ---- workers ---- */
/* NULL: out of memory or descriptors; errno says which. */
psc_worker_t *psc_worker_create(const psc_worker_config_t *config);
/* Fails all connections, closes the transports, frees everything. Nobody may
 * be inside a call then, or hold a request or a connection afterwards. Returns
 * how many requests and regions a peer may still write to, because it did not
 * answer for seconds and its process lives: their memory may not be used for
 * anything else, ever. */
unsigned psc_worker_destroy(psc_worker_t *worker);
/* A thread of the core that moves messages while the program does not; after
 * all transports are open. It ends with the worker, and does not exist after
 * fork. */
int psc_worker_thread_start(psc_worker_t *worker);
/* After fork, in the child: every later call answers FORKED, touches nothing.
 */
void psc_worker_forked(psc_worker_t *worker);
/* ops: address of a psc_transport_ops_t that outlives the worker; path: 0, or
 * less than the attribute `paths` of path 0. Returns the interface's index, or
 * a status with `reason` (PSC_REASON_MAX bytes). */
int psc_worker_open(psc_worker_t *worker, uintptr_t ops, uint32_t path,
                    const psc_setting_t *settings, uint32_t n_settings,
                    char *reason);
void psc_worker_query(psc_worker_t *worker, int iface,
                      psc_iface_attr_t *attr_p);
/* psc_api_t.descriptor. */
int psc_worker_fd(psc_worker_t *worker);
/* The control thread's sleeper, which drives the fabrics while lanes come and
 * go and has nothing to do with what others have posted or finished: it is
 * woken for what arrives and for passes of others alone. psc_worker_progress is
 * its progress, and nobody else's. */
int psc_worker_fabric_fd(psc_worker_t *worker);
int psc_worker_arm_fabric(psc_worker_t *worker);
unsigned psc_worker_progress(psc_worker_t *worker);
/* Threads in psc_api_t.wait return PSC_ERR_INTERRUPTED. */
void psc_worker_wake(psc_worker_t *worker);
/* Are lanes on their way out? The fabric lets go of them only in progress, so
 * somebody has to drive it until none is; control_fd fires when one begins. */
int psc_worker_retiring(psc_worker_t *worker);
/* Do transports hold what was sent, for want of room? It leaves only in
 * progress; *passes_p counts the passes, so that the caller sees whether
 * anybody makes them. control_fd fires when it begins, and again only after
 * this has returned 0. */
int psc_worker_holding(psc_worker_t *worker, uint32_t *passes_p);
/* Readable while psc_worker_control_poll has something. */
int psc_worker_control_fd(psc_worker_t *worker);
int psc_worker_control_poll(psc_worker_t *worker, psc_control_event_t *events,
                            int max);
/* Counters: names, and values of a worker or of one connection. */
int psc_counter_count(void);
const char *psc_counter_name(int index);
void psc_worker_counters(psc_worker_t *worker, uint64_t *values);
void psc_conn_counters(psc_conn_t *conn, uint64_t *values);
/* What the transports of a connection that is up count themselves; of several
 * lanes the same names. At most `room` are filled in; returns how many. */
uint32_t psc_conn_fabric_counters(psc_conn_t *conn, psc_counted_t *counters,
                                  uint32_t room);
/* What all processes of a job know and nobody else: packed regions carry a
 * hash under it, so that none is altered or made up. Before the first of them.
 */
void psc_worker_secret(psc_worker_t *worker, const uint8_t *secret);
void psc_worker_log_to(psc_worker_t *worker, int fd, int level);

/* ---- lanes: one endpoint of one transport ---- */
psc_lane_t *psc_lane_create(psc_worker_t *worker, int iface, uint64_t id);
int psc_lane_address(psc_lane_t *lane, uint8_t *address, size_t *len_p);
int psc_lane_connect(psc_lane_t *lane, int role, const uint8_t *token,
                     const uint8_t *address, size_t len);
int psc_lane_state(psc_lane_t *lane);
/* Once it is up: PSC_OK, the fabric matches its messages; or UNSUPPORTED, and
 * reason (PSC_REASON_MAX bytes) says why if there is more to say. */
int psc_lane_matching(psc_lane_t *lane, char *reason);
/* Why it failed; valid until the lane is destroyed. */
const char *psc_lane_reason(psc_lane_t *lane);
/* For a lane that was not installed; an installed one goes with its
 * connection. */
void psc_lane_destroy(psc_lane_t *lane);

/* ---- connections ---- */
psc_conn_t *psc_conn_create(psc_worker_t *worker, uint64_t id, int rank);
int psc_conn_state(const psc_conn_t *conn);
/* LAZY or FAILED to connect -> CONNECTING. */
int psc_conn_connecting(psc_conn_t *conn);
/* CONNECTING -> UP: the lanes carry messages from now on; lane 0 carries all
 * that is matched, the others help with large data. */
int psc_conn_install(psc_conn_t *conn, psc_lane_t **lanes, uint32_t n_lanes,
                     const psc_proto_params_t *params);
/* Everything outstanding ends with the status. From CONNECTING with
 * ERR_CONNECT the record becomes LAZY again. */
void psc_conn_fail(psc_conn_t *conn, int status);
/* The precon link says that the peer's process ended: what has arrived is
 * delivered, then the connection fails with PEER_LOST. PSC_INPROGRESS: more may
 * be on its way, and the lane will say itself when it was all; ask again, with
 * `last` when patience is over (a child of the peer may keep its stream open).
 */
int psc_conn_peer_ended(psc_conn_t *conn, int last);
/* Why its transport says that it broke; empty: it does not say so. text:
 * PSC_REASON_MAX bytes. */
void psc_conn_reason(psc_conn_t *conn, char *text);
/* UP -> CLOSING: refuse new sends, let the queued ones go, then tell the peer;
 * CLOSED when it has confirmed. LAZY -> CLOSED at once. */
void psc_conn_close(psc_conn_t *conn);
/* Forget it, with the messages that nobody has received; neither it nor its id
 * may be used afterwards. Its memory goes when its lanes, its requests and the
 * active messages that name it have gone. */
void psc_conn_destroy(psc_conn_t *conn);

/* ---- memory that peers may write and read: region_* of psc_api_t ---- */
int psc_memory_register(psc_worker_t *worker, void *base, size_t len,
                        psc_region_t **region_p);
/* PSC_INPROGRESS: not yet, call it again a little later. */
int psc_memory_deregister(psc_region_t *region);
int psc_memory_pack(psc_region_t *region, uint8_t *packed, size_t *len_p);

/* ---- memory whose messages are not registered one by one ---- */
int psc_memory_pin(psc_worker_t *worker, void *base, size_t len,
                   psc_block_t **block_p);
void psc_memory_unpin(psc_worker_t *worker, psc_block_t *block);

/* The address of the psc_api_t, for the hot extension. */
uintptr_t psc_api_address(void);
uint32_t psc_api_abi(void);
uint32_t psc_transport_abi(void);
/* CDEF END */

#endif
