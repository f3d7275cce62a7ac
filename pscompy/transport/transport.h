/* THE CONTRACT between the protocols and the transports.
 *
 * A transport moves bytes and reports its capabilities; it has no notion of
 * tags, rendezvous or sessions. The protocols do not depend on a fabric. The
 * comment at each function pointer is the specification: whether a call may
 * block, who owns the buffer and until when, and how back-pressure is reported.
 *
 * Rules that hold for every call:
 *   - The core makes every call with the worker's lock held, one at a time per
 *     worker. A call never blocks, never sleeps and never runs Python.
 *   - Upcalls (psc_upcalls_t) are made only from inside `progress`, on the
 *     thread that called it. So a call may be made from inside an upcall, but
 *     an upcall never from inside a call. The exceptions are `log` and
 *     `holding`.
 *   - PSC_ERR_NO_RESOURCE is back-pressure: nothing was taken, nothing is
 *     lost, and the core tries again after a later `progress`. The transport
 *     then owes a wake-up: its event descriptor becomes readable when a retry
 *     may succeed.
 *   - A call that starts an operation returns PSC_OK (it has finished; the
 *     completion is not called), PSC_INPROGRESS (the completion will be called
 *     from `progress`, exactly once) or an error (nothing was started).
 *   - Delivery is reliable and in order per endpoint. If a fabric drops or
 *     reorders messages, its transport repairs that.
 *   - Values that a peer can write are bounds-checked before they are used.
 *   - All wire formats are little-endian; lengths are 64 bit. */
#ifndef PSCOMPY_TRANSPORT_TRANSPORT_H
#define PSCOMPY_TRANSPORT_TRANSPORT_H

#include <stddef.h>
#include <stdint.h>

#include "status.h"

#define PSC_TRANSPORT_ABI 11u

/* one-time secret by which the two ends of a lane authenticate each other */
#define PSC_TOKEN_SIZE 32u
#define PSC_ADDRESS_MAX 1024u    /* longest endpoint address, bytes */
#define PSC_RKEY_MAX 128u        /* longest packed remote key, bytes */
#define PSC_AM_HEADER_MAX 64u    /* longest active-message header, bytes */
#define PSC_REASON_MAX 256u      /* longest failure reason, with its NUL */

/* ---- capabilities ------------------------------------------------------ */

#define PSC_CAP_AM_SHORT 0x0001ull   /* the transport implements am_short */
#define PSC_CAP_AM_ZCOPY 0x0002ull   /* the transport implements am_zcopy */
/* the transport implements put, and memory registration */
#define PSC_CAP_PUT 0x0004ull
/* the transport implements get, and memory registration */
#define PSC_CAP_GET 0x0008ull
/* an active message after a put on the same endpoint is delivered after the put
 * is visible */
#define PSC_CAP_PUT_THEN_AM 0x0010ull
/* put completes when its bytes are visible at the target; without this
 * capability ep_flush is mandatory */
#define PSC_CAP_PUT_REMOTE 0x0020ull
#define PSC_CAP_TAG 0x0040ull /* the fabric matches tags; see tag_post */
/* the transport implements event_fd and arm */
#define PSC_CAP_EVENT 0x0080ull
/* the transport connects a process only with itself */
#define PSC_CAP_SELF 0x0100ull
/* the transport connects only processes on one node */
#define PSC_CAP_NODE 0x0200ull
/* put and get need a registration of the local buffer, too (argument `mem`) */
#define PSC_CAP_MEM_LOCAL 0x0400ull
/* ep_failed reports that the peer has ended, after all messages of the peer
 * have been delivered */
#define PSC_CAP_EOF 0x0800ull
/* the transport implements mem_share and rkey_map, which map a peer's memory
 * segment into this process */
#define PSC_CAP_MAP 0x1000ull
/* the transport connects a process only with those in other modules of a
 * modular supercomputer */
#define PSC_CAP_MODULES 0x2000ull
/* the transport implements expose, conceal, exposed and claim: a sender sees
 * the posted receives of its peer, and takes one, so that its message is copied
 * into the buffer of this receive directly */
#define PSC_CAP_EXPOSE 0x4000ull
/* no put of the peer reaches a region of this process after ep_fini */
#define PSC_CAP_PUT_ENDS 0x8000ull
#define PSC_CAP_PUT_AM 0x10000ull /* the transport implements put_am */
/* registered memory that is private stays so at a fork: this process and its
 * child each keep all pages, and puts and gets use those of this process.
 * Without this capability the core registers memory for received messages only
 * for one message at a time */
#define PSC_CAP_FORK 0x20000ull

/* ---- shared structures ------------------------------------------------- */

typedef struct psc_iov {
    void *base;
    size_t len;
} psc_iov_t;

/* Completion of an operation: called once, from inside `progress`, when the
 * operation has completed. It is embedded in a structure of the caller. */
typedef struct psc_comp psc_comp_t;
struct psc_comp {
    void (*func)(psc_comp_t *self, psc_status_t status);
};

typedef struct psc_transport_ops psc_transport_ops_t;
typedef struct psc_upcalls psc_upcalls_t;

/* The first member of every transport's own interface structure. `open` sets
 * `up` and `user` to those in its arguments. */
typedef struct psc_iface {
    const psc_transport_ops_t *ops;
    const psc_upcalls_t *up;
    void *user;
} psc_iface_t;

typedef struct psc_ep {
    psc_iface_t *iface;
    void *user;
} psc_ep_t;

/* a registered region, defined by the transport */
typedef struct psc_mem psc_mem_t;
typedef struct psc_rkey psc_rkey_t; /* an unpacked remote key */
/* a receive buffer of the transport, which the protocol may keep after
 * am_recv */
typedef struct psc_desc psc_desc_t;

#define PSC_SEGMENT_ID_SIZE 16u

/* Stored at the start of the last page of a memory segment that peers can map
 * (mem_share). */
typedef struct psc_segment_identity {
    uint8_t id[PSC_SEGMENT_ID_SIZE]; /* random; identifies the segment */
    /* not 0 if the owner has given up the segment; peers should drop their
     * mappings */
    uint32_t retired;
} psc_segment_identity_t;

/* A peer's segment, mapped for reading. It is reference-counted and may outlive
 * endpoint, interface and peer; its functions may be called from any thread. */
typedef struct psc_map psc_map_t;
struct psc_map {
    const uint8_t *base;
    size_t len;
    uint32_t refs; /* initially 1; see psc_map_hold and psc_map_drop */
    void (*destroy)(psc_map_t *self);
    /* Replaces `len` bytes of the mapping, from `offset` on, by a private copy:
     * the peer may then overwrite its own bytes, and readers in this process
     * see no change. */
    psc_status_t (*keep)(psc_map_t *self, uint64_t offset, size_t len);
};

static inline void psc_map_hold(psc_map_t *map)
{
    __atomic_fetch_add(&map->refs, 1, __ATOMIC_RELAXED);
}

static inline void psc_map_drop(psc_map_t *map)
{
    if (__atomic_fetch_sub(&map->refs, 1, __ATOMIC_ACQ_REL) == 1)
        map->destroy(map);
}

/* CDEF BEGIN */
/* One setting of a transport, parsed and validated by Python. `text` is the
 * value as a string; `number` is set for sizes, counts, times and flags
 * (inf: INT64_MAX, auto: -1). */
typedef struct psc_setting {
    /* the setting's name without the prefix of its variable: "BUFFER_SIZE" of
     * PSP_TCP_BUFFER_SIZE */
    const char *name;
    const char *text;
    int64_t number;
} psc_setting_t;

/* A counter of a transport. */
typedef struct psc_counted {
    const char *name; /* begins with the transport's name: "tcp_stalls" */
    uint64_t value;
} psc_counted_t;
/* CDEF END */

typedef struct psc_open_params {
    uint32_t abi; /* PSC_TRANSPORT_ABI of the core */
    uint32_t worker; /* index of the worker in its session */
    /* which path of the fabric the interface uses: 0 for the interface that is
     * opened first; 1, 2 ... for further ones, which are opened if the first
     * one reports more paths (psc_iface_attr.paths) */
    uint32_t path;
    const psc_upcalls_t *up;
    void *user; /* `open` stores it in psc_iface.user, for the core */
    const psc_setting_t *settings;
    uint32_t n_settings;
    /* buffer of PSC_REASON_MAX bytes, in which `open` writes why it failed, and
     * which variable or action would help */
    char *reason;
} psc_open_params_t;

/* CDEF BEGIN */
/* Properties of an opened interface. Estimates are used for protocol
 * selection. */
typedef struct psc_iface_attr {
    uint64_t caps;
    /* maximum length of header + payload of am_short, in bytes */
    size_t max_short;
    /* maximum length of header + payload of am_bcopy; at least 1 KiB */
    size_t max_bcopy;
    size_t max_zcopy; /* maximum length of the payload of one am_zcopy */
    /* length of the payload below which am_bcopy takes less time */
    size_t min_zcopy;
    /* maximum number of pieces in one am_bcopy or am_zcopy; at least 8 */
    size_t max_iov;
    size_t max_put; /* maximum number of bytes in one put */
    size_t max_get; /* maximum number of bytes in one get */
    double latency_ns; /* time of a small message, one way */
    double overhead_ns; /* processor time per operation */
    double bandwidth; /* bytes per second of a put or an am_zcopy */
    double copy_bandwidth; /* bytes per second of payload sent by am_bcopy */
    /* the receiver of an am_bcopy begins to copy when this many of its bytes
     * have arrived; 0: when all have */
    size_t pipeline;
    double reg_ns; /* time that registering one region takes */
    /* 1 if `open` has measured bandwidth, copy_bandwidth and reg_ns; the core
     * corrects them by the times of messages */
    uint32_t measured;
    double poll_ns; /* time of one `progress` that finds no event */
    /* maximum number of endpoints of the interface; 0: no limit */
    uint32_t max_eps;
    /* number of paths that can be opened, each as an interface of its own;
     * together they carry one connection */
    uint32_t paths;
    /* number of the rail, i.e. of the one of several networks to which this
     * path belongs; a lane connects only paths with equal numbers. Below 65536,
     * and 0 if there is only one path */
    uint32_t rail;
} psc_iface_attr_t;
/* CDEF END */

typedef enum psc_role {
    PSC_ROLE_CONNECTOR, /* begins the handshake, if only one side may */
    PSC_ROLE_ACCEPTOR, /* waits for the connector */
    PSC_ROLE_SELF /* the endpoint is connected to its own address */
} psc_role_t;

typedef struct psc_connect_params {
    psc_role_t role;
    const uint8_t *token; /* PSC_TOKEN_SIZE bytes, the same on both sides;
                             copied during the call; never logged */
    const uint8_t *address; /* as written by the peer's ep_address */
    size_t address_len;
    /* 1 if the connection goes on over other lanes when this endpoint fails. In
     * this case the endpoint should fail soon if its path is silent. */
    uint32_t spare;
} psc_connect_params_t;

/* An active message: an id, a header, a payload. */
typedef struct psc_am {
    uint8_t id;
    uint8_t header_len;
    const void *header; /* the message's header, aligned to 8 bytes */
    const void *payload; /* the message's payload, in one piece */
    size_t len;
    /* NULL: the message is invalid after am_recv has returned; otherwise
     * am_recv may hold it (see psc_upcalls_t) */
    psc_desc_t *desc;
} psc_am_t;

/* Destination of a payload that arrives after its header. Bytes beyond the sum
 * of `iov` are read and discarded. The transport writes there only from inside
 * `progress`, and reads `iov` again each time: between two calls the protocol
 * may set the len of all pieces to 0, because their memory was withdrawn, even
 * if some pieces are partly filled. */
typedef struct psc_dest {
    psc_iov_t *iov; /* owned by the protocol, valid until am_end */
    size_t n_iov;
    void *cookie; /* passed to am_end */
} psc_dest_t;

/* The match bits of tagged messages (PSC_CAP_TAG), from high to low: context
 * 16, source 16, mark 1, tag 31. The transport assigns the source bits; its
 * callers pass zeros there. The mark is not matched (receives ignore it): it
 * tells the receiver that the message stands for another one, which is
 * transferred separately. */
#define PSC_TAG_CONTEXT_SHIFT 48
#define PSC_TAG_SOURCE_SHIFT 32
#define PSC_TAG_MARK 0x80000000ull
#define PSC_TAG_MASK 0x7fffffffull

/* A receive that the fabric matches (PSC_CAP_TAG). */
typedef struct psc_tag_recv {
    psc_ep_t *source;
    uint64_t match;
    uint64_t ignore; /* bits that need not match */
    psc_iov_t buffer;
    /* the transport's own state of the receive, from tag_post until `done` is
     * called */
    void *posted;
    /* number that identifies the message if `done` is called with
     * UNSUPPORTED */
    uint32_t number;
    /* Called from progress when the message is in the buffer. `bits` are its
     * match bits with those of the source, `len` its true length, which may
     * exceed the buffer's. PSC_ERR_UNSUPPORTED: tag_put sent the message before
     * the receive was posted, so its payload was not transferred; `number`
     * identifies the message. Other errors: the message has begun to arrive and
     * will never be complete. */
    void (*done)(struct psc_tag_recv *self, psc_status_t status, uint64_t bits,
                 size_t len);
} psc_tag_recv_t;

/* The match bits of receives that are exposed (PSC_CAP_EXPOSE), and of messages
 * that claim them, from high to low: context 32, zero 1, tag 31. */
#define PSC_EXPOSED_CONTEXT_SHIFT 32

/* maximum number of receives that one endpoint exposes to its peer at a time */
#define PSC_EXPOSED_MAX 32u

/* A receive that is exposed to the peer (PSC_CAP_EXPOSE): the peer can see it,
 * and take it for a message, which is copied into the buffer directly. */
typedef struct psc_exposed psc_exposed_t;
struct psc_exposed {
    /* match bits, see PSC_EXPOSED_CONTEXT_SHIFT */
    uint64_t match, ignore;
    psc_iov_t buffer; /* not empty */
    /* the transport's number of the receive, from expose until conceal succeeds
     * or `landed` is called */
    uint32_t entry;
    /* Called from progress: the peer has taken the receive for a message with
     * the match bits `bits` and of `len` bytes, which may be more than the
     * buffer has. All that the peer had sent before on this endpoint has been
     * delivered. */
    void (*taken)(psc_exposed_t *self, uint64_t bits, uint64_t len);
    /* Called from progress, also after ep_close: the transfer into the buffer
     * has ended, and nobody accesses the buffer any more. If the peer's report
     * that it took the receive has not arrived, `taken` was not called before.
     * With PSC_OK the message is in the buffer. */
    void (*landed)(psc_exposed_t *self, psc_status_t status);
};

/* A receive that the peer exposes to us, as the function `exposed` stores
 * it. */
typedef struct psc_advertised {
    uint32_t entry;
    /* number that ascends in the order in which the peer has exposed its
     * receives */
    uint64_t generation;
    uint64_t match, ignore;
} psc_advertised_t;

/* ---- what a transport may call ----------------------------------------- */

struct psc_upcalls {
    uint32_t abi;
    uint32_t size; /* sizeof this structure in the core's build */

    /* A whole message has arrived. It is invalid after return, unless desc is
     * set and the upcall returns PSC_INPROGRESS: then the protocol holds the
     * buffer and calls ops->desc_release later. Only then does the peer get
     * back the credit for this buffer. */
    psc_status_t (*am_recv)(psc_ep_t *ep, const psc_am_t *am);

    /* The header of a message has arrived; its payload of len bytes follows.
     * The protocol stores the destination in *dest_p. Between am_begin and
     * am_end no other upcall is made for this endpoint, except ep_failed, which
     * ends the message too. */
    void (*am_begin)(psc_ep_t *ep, uint8_t id, const void *header,
                     uint8_t header_len, uint64_t len, psc_dest_t *dest_p);
    void (*am_end)(psc_ep_t *ep, void *cookie);

    /* The endpoint works on this side, and a message of the other side has
     * arrived. */
    void (*ep_up)(psc_ep_t *ep);

    /* The endpoint could not connect, or broke, or the peer closed it. reason
     * names cause and remedy. Outstanding completions follow with an error. The
     * core calls ep_close afterwards. */
    void (*ep_failed)(psc_ep_t *ep, psc_status_t status, const char *reason);

    /* level: 0 fatal, 1 error, 2 warning, 3 info, 4 debug. May be called from
     * any function and thread; `line` is one line without its newline. */
    void (*log)(psc_iface_t *iface, int level, const char *line);

    /* TAG: no posted receive matched this message. The payload is invalid after
     * return. */
    void (*tag_unexpected)(psc_ep_t *ep, uint64_t bits, const void *payload,
                           size_t len);

    /* `holding` is 1 if bytes that am_short or am_bcopy took are still queued
     * in the transport, because the fabric had no room, and 0 when the last of
     * them has been sent. The event descriptor becomes readable when there is
     * room, and the core ensures that some thread then calls progress, even if
     * the program makes no further call. Called once per change; like log, it
     * may be called from any function. */
    void (*holding)(psc_iface_t *iface, int holding);

    /* TAG: no posted receive matched a message that tag_put sent. */
    void (*tag_missed)(psc_ep_t *ep, uint64_t bits, size_t len,
                       uint32_t number);

    /* A rank of the job seems to ask for a connection by ep_call, and no
     * endpoint of this interface was passed to ep_call for this rank. The rank
     * has not proved its identity yet. PSC_OK: the core has called ep_call for
     * this rank inside this upcall, or will do so later. Any other status: the
     * transport refuses the connection. */
    psc_status_t (*rank_calls)(psc_iface_t *iface, int rank);
};

/* ---- what a transport implements --------------------------------------- */

struct psc_transport_ops {
    uint32_t abi; /* PSC_TRANSPORT_ABI that the transport was built with */
    uint32_t size; /* sizeof(psc_transport_ops_t) */
    const char *name; /* lower case, at most 15 bytes */

    /* ---- mandatory: the interface ---- */

    /* Open the fabric for one worker. On failure it writes params->reason and
     * leaves nothing allocated. The settings are valid during the call. Only
     * this call may block, to look up names or devices. */
    psc_status_t (*open)(const psc_open_params_t *params,
                         psc_iface_t **iface_p);
    /* Stores the properties of the interface, constant after open. */
    void (*query)(psc_iface_t *iface, psc_iface_attr_t *attr_p);
    /* Poll once: deliver arrived messages, complete finished operations, send
     * queued bytes. Returns the number of events that it handled. The number is
     * bounded, so that other interfaces are polled too. */
    unsigned (*progress)(psc_iface_t *iface);
    /* Shutting down is three steps, each called once, in this order, on the
     * interface and on the endpoint alike:
     *   close: refuse new work, start sending the goodbye (the last message
     *          to the peer); never blocks;
     *   stop:  return PSC_OK when neither the fabric nor a peer that writes by
     *          itself will access our memory any more; return PSC_INPROGRESS
     *          to be called again after progress;
     *   fini:  free everything. An endpoint's fini follows its stop; the core
     *          may call it after a bounded number of stops, and completions
     *          that are still outstanding then are never called.
     * After an endpoint's close no upcall is made for it except completions:
     * a payload that had begun ends without am_end. */
    void (*close)(psc_iface_t *iface);
    psc_status_t (*stop)(psc_iface_t *iface);
    void (*fini)(psc_iface_t *iface);

    /* ---- mandatory: endpoints ---- */

    psc_status_t (*ep_create)(psc_iface_t *iface, void *user, psc_ep_t **ep_p);
    /* Writes the local address for the peer's ep_connect. *len_p: in, the room
     * (PSC_ADDRESS_MAX); out, the length. */
    psc_status_t (*ep_address)(psc_ep_t *ep, uint8_t *address, size_t *len_p);
    /* Start connecting. PSC_INPROGRESS: progress will call up->ep_up or
     * up->ep_failed. PSC_OK: the endpoint is up. Before the transport calls
     * up->ep_up or returns PSC_OK, it proves to the peer that it holds the
     * token and demands the same proof from the peer
     * (transport/kit/token_proof.h does that with messages). The core sends
     * nothing before both sides are up; messages that arrive earlier are
     * kept. */
    psc_status_t (*ep_connect)(psc_ep_t *ep,
                               const psc_connect_params_t *params);
    void (*ep_close)(psc_ep_t *ep);
    psc_status_t (*ep_stop)(psc_ep_t *ep);
    void (*ep_fini)(psc_ep_t *ep);

    /* Send header and pieces, copied before return: PSC_OK means that the
     * buffers may be reused. header_len + sum(iov) <= max_bcopy. */
    psc_status_t (*am_bcopy)(psc_ep_t *ep, uint8_t id, const void *header,
                             uint8_t header_len, const psc_iov_t *iov,
                             size_t n_iov);

    /* Called when the connection has lost its other lanes (spare is 0) or has
     * another one again (1); see psc_connect_params_t. NULL if the transport is
     * equally patient with a silent path in both cases. */
    void (*ep_spare)(psc_ep_t *ep, uint32_t spare);

    /* ---- by capability; NULL without it ---- */

    /* AM_SHORT: like am_bcopy for one small contiguous piece, but faster. */
    psc_status_t (*am_short)(psc_ep_t *ep, uint8_t id, const void *header,
                             uint8_t header_len, const void *payload,
                             size_t len);
    /* AM_ZCOPY: the header is copied, the pieces belong to the transport until
     * comp is called (local completion). The iov array itself is copied. The
     * peer delivers a long payload by am_begin, so that it is not copied. */
    psc_status_t (*am_zcopy)(psc_ep_t *ep, uint8_t id, const void *header,
                             uint8_t header_len, const psc_iov_t *iov,
                             size_t n_iov, psc_comp_t *comp);

    /* PUT: write len <= max_put bytes at `offset` of the remote region. The
     * buffer belongs to the transport until comp is called. With PUT_REMOTE
     * comp is called at remote completion, else at local completion. With
     * MEM_LOCAL `mem` is the registration that covers the buffer, else it is
     * NULL. The transport checks offset + len against the rkey. */
    psc_status_t (*put)(psc_ep_t *ep, const void *buffer, size_t len,
                        psc_mem_t *mem, psc_rkey_t *rkey, uint64_t offset,
                        psc_comp_t *comp);
    /* GET: read len bytes at `offset` of the remote region. comp is called when
     * the bytes are in the buffer. */
    psc_status_t (*get)(psc_ep_t *ep, void *buffer, size_t len, psc_mem_t *mem,
                        psc_rkey_t *rkey, uint64_t offset, psc_comp_t *comp);
    /* PUT without PUT_REMOTE: comp is called when all puts issued before on
     * this endpoint are visible at the target. */
    psc_status_t (*ep_flush)(psc_ep_t *ep, psc_comp_t *comp);

    /* PUT or GET: register a region with the fabric. `ep` is the only peer that
     * will use the region; if it is NULL, all peers may use the region.
     * NO_RESOURCE (no room for registrations) makes the protocol use active
     * messages instead. */
    psc_status_t (*mem_register)(psc_iface_t *iface, psc_ep_t *ep, void *base,
                                 size_t len, psc_mem_t **mem_p);
    /* End the registration. Its keys are refused from now on. No peer accesses
     * the memory with them after this call, provided that the peer has reported
     * that it has finished, or mem_revoke has returned PSC_OK. */
    void (*mem_deregister)(psc_iface_t *iface, psc_mem_t *mem);
    /* Refuses the keys of the registration from now on. The core calls
     * mem_revoke before mem_deregister if the peer may be using a key. The
     * function is NULL if mem_deregister alone ends every access, whatever the
     * peer is doing. PSC_OK: no byte is written with the keys after
     * mem_deregister. PSC_INPROGRESS: a peer is writing at this moment, or is
     * about to write (its process may have been stopped there). The core then
     * calls mem_revoke again after progress, and the transport owes a wake-up
     * (see PSC_ERR_NO_RESOURCE in the rules at the head of this file). A peer
     * whose process has ended writes no more. */
    psc_status_t (*mem_revoke)(psc_iface_t *iface, psc_mem_t *mem);
    /* Writes the key of a registration, for the peer's rkey_unpack. *len_p: in,
     * the room (PSC_RKEY_MAX); out, the length. */
    psc_status_t (*rkey_pack)(psc_iface_t *iface, psc_mem_t *mem,
                              uint8_t *packed, size_t *len_p);
    /* Makes a key for put and get from `packed`, which comes from the peer and
     * is checked before it is used. */
    psc_status_t (*rkey_unpack)(psc_ep_t *ep, const uint8_t *packed, size_t len,
                                psc_rkey_t **rkey_p);
    void (*rkey_release)(psc_ep_t *ep, psc_rkey_t *rkey);

    /* MAP: mem_register for a segment that has a descriptor: a memory file that
     * can neither shrink nor be written by others, whose last page begins with
     * a psc_segment_identity_t. base, len and fd stay valid until
     * mem_deregister; the key can also be used for get and put if the transport
     * has them. */
    psc_status_t (*mem_share)(psc_iface_t *iface, void *base, size_t len,
                              int fd, psc_mem_t **mem_p);
    /* Maps the peer's segment, from a packed key of its mem_share. This costs
     * one or two system calls, so the core keeps the mapping as long as it may
     * need it. The kind, seals, length and id of the file are verified.
     * UNSUPPORTED: the segment cannot be mapped here, or does not match the
     * key; PROTOCOL: packed is not such a key. */
    psc_status_t (*rkey_map)(psc_ep_t *ep, const uint8_t *packed, size_t len,
                             psc_map_t **map_p);

    /* Releases a receive buffer that the protocol holds (am_recv with desc). */
    void (*desc_release)(psc_iface_t *iface, psc_desc_t *desc);

    /* TAG, called once an endpoint is up: does the fabric match messages of
     * this peer? Both sides get the same answer. If it does, all messages to be
     * matched are sent with tag_send; they are delivered to receives posted
     * with tag_post, or by tag_unexpected. UNSUPPORTED: reason (PSC_REASON_MAX
     * bytes) says why. */
    psc_status_t (*tag_ready)(psc_ep_t *ep, char *reason);
    /* Post a receive. From now on, the first message whose bits match is
     * delivered to the first receive that matches it. An earlier message that
     * was not passed to tag_unexpected is compared with the receive, too, so no
     * message is missed. The structure and the buffer belong to the transport
     * until done is called or tag_cancel succeeds; after ep_close, until the
     * endpoint has stopped. NO_RESOURCE: keep the receive in software for
     * now. */
    psc_status_t (*tag_post)(psc_ep_t *ep, psc_tag_recv_t *recv);
    /* PSC_OK: the receive is withdrawn, done is not called. PSC_ERR_INVALID:
     * the receive has matched already; done follows. */
    psc_status_t (*tag_cancel)(psc_ep_t *ep, psc_tag_recv_t *recv);
    /* Like am_bcopy, but for matched messages. Only the payload is sent:
     * sum(iov) <= max_bcopy. On one endpoint, active messages and matched
     * messages are delivered in the order in which they were sent; done of a
     * matched receive is called in this order. */
    psc_status_t (*tag_send)(psc_ep_t *ep, uint64_t bits, const psc_iov_t *iov,
                             size_t n_iov);
    /* TAG; may be NULL. Like tag_send, but for one non-empty piece of up to
     * max_put bytes, sent with PSC_TAG_MARK. The piece belongs to the transport
     * until comp is called. PSC_OK: a receive has taken the piece. UNSUPPORTED:
     * no receive was posted, so the peer's tag_missed gets the bits, the length
     * and the number that identifies the message on both sides. If UNSUPPORTED
     * is returned at once, the piece is too long. */
    psc_status_t (*tag_put)(psc_ep_t *ep, uint64_t bits, const void *buffer,
                            size_t len, uint32_t *number_p, psc_comp_t *comp);

    /* EVENT: a descriptor that becomes readable when progress would find an
     * event, provided that arm has returned PSC_OK since the last progress. The
     * core never reads it; progress clears its signal. */
    int (*event_fd)(psc_iface_t *iface);
    /* PSC_OK: armed, the caller may sleep. PSC_ERR_NO_RESOURCE: an event is
     * pending, poll again. No wake-up is lost: an event after the last progress
     * either makes arm fail or makes the descriptor readable. progress disarms,
     * and so may a failing arm; arming twice has no further effect. */
    psc_status_t (*arm)(psc_iface_t *iface);

    /* NULL if the transport has no counters. Stores up to `room` counters of
     * this endpoint and returns how many it stored. The names stay valid. */
    uint32_t (*ep_counters)(const psc_ep_t *ep, psc_counted_t *counters,
                            uint32_t room);
    /* Like ep_counters, for the present contents of the interface's caches and
     * pools. */
    uint32_t (*iface_counters)(const psc_iface_t *iface,
                               psc_counted_t *counters, uint32_t room);

    /* NULL if the transport cannot connect ranks by number; then ep_call and
     * ep_called are NULL, too. From now on the ranks of one job on this node
     * reach each other by their numbers. Only these ranks have `key`,
     * PSC_TOKEN_SIZE bytes; all endpoints that ep_call connects prove to each
     * other that they have it. *fd_p is a descriptor that is readable while a
     * rank asks for a connection (ep_call), and from the end of a connected
     * rank's process until progress has noticed it; the transport owns the
     * descriptor. `join` is called once. */
    psc_status_t (*join)(psc_iface_t *iface, const uint8_t *key, int rank,
                         int *fd_p);
    /* Instead of ep_connect, after join: start connecting to this rank.
     * PSC_ERR_CONNECT: the rank has not joined on this node. If both ranks make
     * this call for each other, one of them perhaps after its upcall
     * rank_calls, the two endpoints are connected with each other. The core may
     * send as soon as ep_up is called: the peer's endpoint is up, too, or
     * becomes so if its process lives. A transport may let two ranks connect
     * once only; later calls fail. */
    psc_status_t (*ep_call)(psc_ep_t *ep, int rank);
    /* Returns true for an endpoint that is connecting if this side must not
     * give the endpoint up, because the peer may be up already. If a connection
     * is up, returns true for one of its two endpoints, and false for the
     * other. *process_p: the id of the peer's process, or 0 if it is not
     * known. */
    int (*ep_called)(const psc_ep_t *ep, int *process_p);

    /* EXPOSE: let the peer see a receive. The peer's function `exposed` stores
     * it, and also the number `seen`, which only grows. The structure and the
     * buffer belong to the transport until conceal succeeds or landed is
     * called. NO_RESOURCE: too many receives are exposed. UNSUPPORTED: this
     * endpoint cannot expose receives. */
    psc_status_t (*expose)(psc_ep_t *ep, psc_exposed_t *recv, uint64_t seen);
    /* Hide an advertised receive again. PSC_OK: it is hidden, and a peer whose
     * `exposed` stores this `seen` cannot take it. PSC_ERR_INVALID: the peer
     * has taken the receive, so landed follows. */
    psc_status_t (*conceal)(psc_ep_t *ep, psc_exposed_t *recv, uint64_t seen);
    /* Stores the receives that the peer exposes, PSC_EXPOSED_MAX at most, in
     * any order, and the peer's `seen`. If a receive is stored, so are all that
     * were exposed before it and are still exposed. Returns the number of
     * stored receives. */
    uint32_t (*exposed)(psc_ep_t *ep, psc_advertised_t *advertised,
                        uint64_t *seen_p);
    /* Take one of the receives that `exposed` stored, for the bytes of
     * `buffer`, which belong to the transport until comp is called; bytes for
     * which the receive has no room are not sent. UNSUPPORTED: the peer has
     * hidden the receive meanwhile (conceal), and nothing was sent. On one
     * endpoint, active messages and the reports of claims (psc_exposed.taken)
     * arrive in the order in which they were sent. A side that calls progress
     * copies the bytes, whatever the other side does. */
    psc_status_t (*claim)(psc_ep_t *ep, const psc_advertised_t *advertised,
                          uint64_t bits, const void *buffer, size_t len,
                          psc_comp_t *comp);

    /* PUT_AM: like put, for len > 0, and an active message without payload
     * behind it, which is delivered when the bytes are visible. The fabric
     * moves both, whatever this process does next. On one endpoint, these
     * messages and all others are delivered in the order in which they were
     * sent. A key that the peer has revoked may break the endpoint. */
    psc_status_t (*put_am)(psc_ep_t *ep, uint8_t id, const void *header,
                           uint8_t header_len, const void *buffer, size_t len,
                           psc_mem_t *mem, psc_rkey_t *rkey, uint64_t offset,
                           psc_comp_t *comp);
};

#endif
