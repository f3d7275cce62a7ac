/* THE CONTRACT between the protocols and the transports.
 *
 * A transport moves bytes and says what it can do; it knows no tags, no
 * rendezvous, no sessions. The protocols know no fabric. The comment at each
 * function pointer is the specification: what may block, who owns the buffer
 * until when, what back-pressure looks like.
 *
 * Rules that hold for every call:
 *  - The core makes every call with the worker's lock held, one at a time per
 *    worker. A call never blocks, never sleeps and never runs Python.
 *  - Upcalls (psc_upcalls_t) are made only from inside `progress`, on the
 *    thread that called it. So a call may be made from inside an upcall, but
 *    an upcall never from inside a call. The exceptions are `log` and
 *    `holding`.
 *  - PSC_ERR_NO_RESOURCE is back-pressure: nothing was taken, nothing is
 *    lost, the core tries again after a later `progress`. The transport then
 *    owes a wake-up: its event descriptor fires when trying again may succeed.
 *  - A call that starts something returns PSC_OK (finished; the completion is
 *    not called), PSC_INPROGRESS (the completion will be called from
 *    `progress`, exactly once) or an error (nothing started).
 *  - Delivery is reliable and in order per endpoint. A fabric that drops or
 *    reorders mends that inside its transport.
 *  - Whatever a peer can write is bounds-checked before it is believed.
 *  - All wire formats are little-endian; lengths are 64 bit. */
#ifndef PSCOMPY_CORE_TRANSPORT_H
#define PSCOMPY_CORE_TRANSPORT_H

#include <stddef.h>
#include <stdint.h>

#include "status.h"

#define PSC_TRANSPORT_ABI 5u

#define PSC_TOKEN_SIZE 32u       /* one-time secret that opens a lane */
#define PSC_ADDRESS_MAX 1024u    /* longest endpoint address, bytes */
#define PSC_RKEY_MAX 128u        /* longest packed remote key, bytes */
#define PSC_AM_HEADER_MAX 64u    /* longest active-message header, bytes */
#define PSC_REASON_MAX 256u      /* longest failure reason, with its NUL */

/* ---- capabilities ------------------------------------------------------ */

#define PSC_CAP_AM_SHORT 0x0001ull   /* am_short */
#define PSC_CAP_AM_ZCOPY 0x0002ull   /* am_zcopy */
#define PSC_CAP_PUT 0x0004ull        /* put, and memory registration */
#define PSC_CAP_GET 0x0008ull        /* get, and memory registration */
#define PSC_CAP_PUT_THEN_AM                                                    \
    0x0010ull /* an am after a put on one endpoint is                          \
                 delivered after the put is visible */
#define PSC_CAP_PUT_REMOTE                                                     \
    0x0020ull /* put completes when visible at target;                         \
                 without it ep_flush is mandatory */
#define PSC_CAP_TAG 0x0040ull        /* matching in hardware */
#define PSC_CAP_EVENT 0x0080ull      /* event_fd and arm */
#define PSC_CAP_SELF 0x0100ull       /* reaches only its own process */
#define PSC_CAP_NODE 0x0200ull       /* reaches only its own node */
#define PSC_CAP_MEM_LOCAL                                                      \
    0x0400ull  /* put and get need the local buffer                            \
                  registered too (their `mem`) */
#define PSC_CAP_EOF                                                            \
    0x0800ull        /* a peer's end comes as ep_failed, after                 \
                        all that it had sent */
#define PSC_CAP_MAP                                                            \
    0x1000ull        /* mem_share and rkey_map: a peer's                       \
                        segment as memory of ours */
#define PSC_CAP_MODULES                                                        \
    0x2000ull    /* reaches only processes of other modules                    \
                    of the machine */

/* ---- shared structures ------------------------------------------------- */

typedef struct psc_iov {
    void *base;
    size_t len;
} psc_iov_t;

/* Called once, from inside `progress`, when the operation has ended. It is
 * embedded in something that the caller owns. */
typedef struct psc_comp psc_comp_t;
struct psc_comp {
    void (*func)(psc_comp_t *self, psc_status_t status);
};

typedef struct psc_transport_ops psc_transport_ops_t;
typedef struct psc_upcalls psc_upcalls_t;

/* The first member of every transport's own structure. `up` and `user` are
 * set by the transport in `open` and `ep_create` from what it is given. */
typedef struct psc_iface {
    const psc_transport_ops_t *ops;
    const psc_upcalls_t *up;
    void *user;
} psc_iface_t;

typedef struct psc_ep {
    psc_iface_t *iface;
    void *user;
} psc_ep_t;

typedef struct psc_mem psc_mem_t;   /* a registered region, transport's own */
typedef struct psc_rkey psc_rkey_t; /* an unpacked remote key */
typedef struct psc_desc psc_desc_t; /* a receive buffer that may be held */

#define PSC_SEGMENT_ID_SIZE 16u

/* Begins the last page of a segment that is shared by its descriptor. */
typedef struct psc_segment_identity {
    uint8_t id[PSC_SEGMENT_ID_SIZE]; /* random: what was mapped is this one */
    uint32_t retired; /* its owner has given it up: let go of it */
} psc_segment_identity_t;

/* A peer's segment, mapped for reading. It is counted, and outlives endpoint,
 * interface and peer; its functions may be called from any thread. */
typedef struct psc_map psc_map_t;
struct psc_map {
    const uint8_t *base;
    size_t len;
    uint32_t refs; /* 1 when made; see psc_map_hold and psc_map_drop */
    void (*destroy)(psc_map_t *self);
    /* From now on these bytes are ours alone: the peer may write to its own
     * again, and who reads here sees no change. */
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
    const char *name; /* without prefix: "BUFFER_SIZE" */
    const char *text;
    int64_t number;
} psc_setting_t;

/* Something that a transport counts. */
typedef struct psc_counted {
    const char *name; /* begins with the transport's: "tcp_stalls" */
    uint64_t value;
} psc_counted_t;
/* CDEF END */

typedef struct psc_open_params {
    uint32_t abi;              /* PSC_TRANSPORT_ABI of the core */
    uint32_t worker;           /* index of the worker in its session */
    uint32_t path;             /* which of the fabric's paths; 0 unless the
                                  first one said that there are more */
    const psc_upcalls_t *up;
    void *user;                /* handed back in psc_iface.user */
    const psc_setting_t *settings;
    uint32_t n_settings;
    char *reason;              /* PSC_REASON_MAX bytes: why open failed, and
                                  which variable or action would help */
} psc_open_params_t;

/* CDEF BEGIN */
/* What an opened interface can do. Estimates serve protocol selection. */
typedef struct psc_iface_attr {
    uint64_t caps;
    size_t max_short;      /* header + payload of am_short, bytes */
    size_t max_bcopy;      /* header + payload of am_bcopy; at least 1 KiB */
    size_t max_zcopy;      /* payload of one am_zcopy */
    size_t min_zcopy;      /* below it a copy is cheaper */
    size_t max_iov; /* pieces in one am_bcopy or am_zcopy; at least 8 */
    size_t max_put; /* bytes in one put */
    size_t max_get; /* bytes in one get */
    size_t reg_align; /* alignment that registration prefers */
    double latency_ns; /* one way, small message */
    double overhead_ns; /* processor time per operation */
    double bandwidth; /* bytes per second, put or zcopy */
    double copy_bandwidth; /* bytes per second, one bcopy through the ring */
    double reg_ns; /* cost of registering one region */
    double poll_ns; /* cost of one `progress` that finds nothing */
    uint32_t max_eps; /* 0: no limit */
    uint32_t paths; /* that can be opened, each as an interface of its
                       own; they carry one connection together */
    uint32_t rail; /* of this path: lanes join equal rails only; below
                      65536, and 0 where there is but one path */
} psc_iface_attr_t;
/* CDEF END */

typedef enum psc_role {
    PSC_ROLE_CONNECTOR, /* acts first where only one side may */
    PSC_ROLE_ACCEPTOR, /* waits for the connector's act */
    PSC_ROLE_SELF /* the endpoint is connected to its own address */
} psc_role_t;

typedef struct psc_connect_params {
    psc_role_t role;
    const uint8_t *token; /* PSC_TOKEN_SIZE bytes, the same on both sides;
                             copied during the call; never logged */
    const uint8_t *address; /* the peer's ep_address */
    size_t address_len;
} psc_connect_params_t;

/* An active message: an id, a header, a payload. */
typedef struct psc_am {
    uint8_t id;
    uint8_t header_len;
    const void *header; /* aligned to 8 */
    const void *payload; /* contiguous */
    size_t len;
    psc_desc_t *desc; /* NULL: gone on return; else see am_recv */
} psc_am_t;

/* Where the payload of a message goes whose header came first. Bytes beyond
 * the sum of `iov` are read and discarded. The transport writes there only from
 * inside `progress`, and reads `iov` anew whenever it does: between two calls
 * the protocol may set the len of all pieces to 0, because their memory was
 * taken back, even if some are already filled in part. */
typedef struct psc_dest {
    psc_iov_t *iov; /* the protocol's, valid until am_end */
    size_t n_iov;
    void *cookie; /* handed back in am_end */
} psc_dest_t;

/* Match bits, from high to low: context 16, source 16, mark 1, tag 31. Which
 * source is which is the transport's affair: above it these bits are zero. The
 * mark is no part of the match (receives ignore it): it tells the receiver
 * that the message stands for another one, which travels in its own way. */
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
    void *posted; /* the transport's, from tag_post to done */
    uint32_t number; /* see done */
    /* Called from progress: the message is in the buffer. bits are its bits
     * with those of the source, len its true length, which may exceed the
     * buffer's. UNSUPPORTED: tag_put sent it before the receive was there, so
     * it is not here; number: which one. Other errors: it has begun to arrive
     * and never will. */
    void (*done)(struct psc_tag_recv *self, psc_status_t status, uint64_t bits,
                 size_t len);
} psc_tag_recv_t;

/* ---- what a transport may call ----------------------------------------- */

struct psc_upcalls {
    uint32_t abi;
    uint32_t size; /* of this structure, as the core was built */

    /* A whole message has arrived. It is gone on return, unless desc is set
     * and PSC_INPROGRESS comes back: then the protocol holds it and calls
     * ops->desc_release later; the slot's credit returns only then. */
    psc_status_t (*am_recv)(psc_ep_t *ep, const psc_am_t *am);

    /* The header of a message has arrived and its payload of len bytes is
     * still to come: where shall it go? Between begin and end no other upcall
     * is made for this endpoint, except ep_failed, which ends it too. */
    void (*am_begin)(psc_ep_t *ep, uint8_t id, const void *header,
                     uint8_t header_len, uint64_t len, psc_dest_t *dest_p);
    void (*am_end)(psc_ep_t *ep, void *cookie);

    /* This side of the endpoint works and has heard from the other side. */
    void (*ep_up)(psc_ep_t *ep);

    /* The endpoint did not come up, or broke, or the peer ended it. reason
     * names cause and remedy. Completions still outstanding follow with an
     * error. The core calls ep_close afterwards. */
    void (*ep_failed)(psc_ep_t *ep, psc_status_t status, const char *reason);

    /* level: 0 fatal, 1 error, 2 warning, 3 info, 4 debug. May be called from
     * anywhere; takes a whole line without its end. */
    void (*log)(psc_iface_t *iface, int level, const char *line);

    /* TAG: a message that no posted receive matched; gone on return. */
    void (*tag_unexpected)(psc_ep_t *ep, uint64_t bits, const void *payload,
                           size_t len);

    /* 1: bytes that am_short or am_bcopy took are still here, because the
     * fabric had no room; 0: the last of them has left. The event descriptor
     * fires when there is room, and the core sees to it that somebody then
     * calls progress, though the program may never call again. Once per
     * change; like log, it may be called from anywhere. */
    void (*holding)(psc_iface_t *iface, int holding);

    /* TAG: of a message that tag_put sent, no posted receive matched it. */
    void (*tag_missed)(psc_ep_t *ep, uint64_t bits, size_t len,
                       uint32_t number);
};

/* ---- what a transport implements --------------------------------------- */

struct psc_transport_ops {
    uint32_t abi; /* PSC_TRANSPORT_ABI that the transport was built with */
    uint32_t size; /* sizeof(psc_transport_ops_t) */
    const char *name; /* lower case, at most 15 bytes */

    /* ---- mandatory: the interface ---- */

    /* Open the fabric for one worker. Fails with a reason (params->reason)
     * and leaves nothing behind. The settings are valid during the call. It
     * alone may block, to look up names or devices. */
    psc_status_t (*open)(const psc_open_params_t *params,
                         psc_iface_t **iface_p);
    /* Constant after open. */
    void (*query)(psc_iface_t *iface, psc_iface_attr_t *attr_p);
    /* Poll once: deliver what has arrived, finish what is finished, move what
     * was queued. Returns how many events it handled, 0 for none. Handles a
     * bounded number so that other interfaces get their turn. */
    unsigned (*progress)(psc_iface_t *iface);
    /* Shutting down is three steps, each called once, in this order, on the
     * interface and on the endpoint alike:
     *   close: refuse new work, start saying goodbye; never blocks;
     *   stop:  PSC_OK when the fabric will touch no memory of ours any more,
     *          and no peer will that writes by itself,
     *          PSC_INPROGRESS to be called again after progress;
     *   fini:  free everything. An endpoint's fini needs its stop; the core
     *          may call it after a bounded number of stops, and completions
     *          that are still outstanding then are never called.
     * After an endpoint's close no upcall is made for it but completions: a
     * payload that had begun ends without am_end. */
    void (*close)(psc_iface_t *iface);
    psc_status_t (*stop)(psc_iface_t *iface);
    void (*fini)(psc_iface_t *iface);

    /* ---- mandatory: endpoints ---- */

    psc_status_t (*ep_create)(psc_iface_t *iface, void *user, psc_ep_t **ep_p);
    /* Local address bytes for the peer's ep_connect. *len_p: in, the room
     * (PSC_ADDRESS_MAX); out, the length. */
    psc_status_t (*ep_address)(psc_ep_t *ep, uint8_t *address, size_t *len_p);
    /* Begin connecting. PSC_INPROGRESS: up->ep_up or up->ep_failed follows
     * from progress. PSC_OK: up already. The transport proves the token to
     * the peer and demands it from the peer before it says up (parts/meet.h
     * does that over whatever carries messages). The core sends
     * nothing before both sides said up; what arrives earlier is kept. */
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

    /* ---- by capability; NULL without it ---- */

    /* AM_SHORT: like am_bcopy for one small contiguous piece, for speed. */
    psc_status_t (*am_short)(psc_ep_t *ep, uint8_t id, const void *header,
                             uint8_t header_len, const void *payload,
                             size_t len);
    /* AM_ZCOPY: the header is copied, the pieces belong to the transport
     * until comp fires (local completion). The iov array itself is copied. */
    psc_status_t (*am_zcopy)(psc_ep_t *ep, uint8_t id, const void *header,
                             uint8_t header_len, const psc_iov_t *iov,
                             size_t n_iov, psc_comp_t *comp);

    /* PUT: write len <= max_put bytes at `offset` of the remote region. The
     * buffer belongs to the transport until comp fires: remote completion
     * with PUT_REMOTE, local completion otherwise. mem is the registration
     * that covers the buffer with MEM_LOCAL, NULL without. The
     * transport checks offset + len against the rkey. */
    psc_status_t (*put)(psc_ep_t *ep, const void *buffer, size_t len,
                        psc_mem_t *mem, psc_rkey_t *rkey, uint64_t offset,
                        psc_comp_t *comp);
    /* GET: read; comp fires when the bytes are in the buffer. */
    psc_status_t (*get)(psc_ep_t *ep, void *buffer, size_t len, psc_mem_t *mem,
                        psc_rkey_t *rkey, uint64_t offset, psc_comp_t *comp);
    /* PUT without PUT_REMOTE: comp fires when all puts issued before on this
     * endpoint are visible at the target. */
    psc_status_t (*ep_flush)(psc_ep_t *ep, psc_comp_t *comp);

    /* PUT or GET: make a region known to the fabric. ep: the one peer that
     * will use it, or NULL for all. NO_RESOURCE (no room for registrations)
     * makes the protocol use active messages instead. */
    psc_status_t (*mem_register)(psc_iface_t *iface, psc_ep_t *ep, void *base,
                                 size_t len, psc_mem_t **mem_p);
    /* Forget it. Its keys are refused from now on. Nobody writes or reads the
     * memory by them after this call, provided that the peer has said that it
     * has finished, or mem_revoke that it cannot. */
    void (*mem_deregister)(psc_iface_t *iface, psc_mem_t *mem);
    /* Or NULL, where mem_deregister alone ends every access, whatever the peer
     * is doing. Before mem_deregister, if the peer may be using a key: refuse
     * the keys. PSC_OK: no byte is written by them after mem_deregister.
     * PSC_INPROGRESS: a peer is writing this moment, or has decided to write
     * (it may have been stopped there); call again after progress. A peer whose
     * process has ended writes no more. The transport owes a wake-up as for
     * NO_RESOURCE. */
    psc_status_t (*mem_revoke)(psc_iface_t *iface, psc_mem_t *mem);
    /* *len_p: in, the room (PSC_RKEY_MAX); out, the length. */
    psc_status_t (*rkey_pack)(psc_iface_t *iface, psc_mem_t *mem,
                              uint8_t *packed, size_t *len_p);
    /* packed comes from the peer: checked before it is believed. */
    psc_status_t (*rkey_unpack)(psc_ep_t *ep, const uint8_t *packed, size_t len,
                                psc_rkey_t **rkey_p);
    void (*rkey_release)(psc_ep_t *ep, psc_rkey_t *rkey);

    /* MAP: mem_register for a segment that has a descriptor, a memory file
     * that can neither shrink nor be written by others, whose last page begins
     * with a psc_segment_identity_t. Base, len and fd stay until
     * mem_deregister; the key serves get and put too, where they exist. */
    psc_status_t (*mem_share)(psc_iface_t *iface, void *base, size_t len,
                              int fd, psc_mem_t **mem_p);
    /* The peer's segment, from a packed key of its mem_share. A system call or
     * two, so the core keeps what it gets for as long as it may need it.
     * Nothing is believed that the file itself does not show: its kind, its
     * seals, its length, its id. UNSUPPORTED: it cannot be had here, or is not
     * what the key says; PROTOCOL: packed is no such key. */
    psc_status_t (*rkey_map)(psc_ep_t *ep, const uint8_t *packed, size_t len,
                             psc_map_t **map_p);

    /* Receives with desc: give the buffer back. */
    void (*desc_release)(psc_iface_t *iface, psc_desc_t *desc);

    /* TAG: once an endpoint is up: does the fabric match what comes from this
     * peer? Both sides get the same answer, and then whatever is to be matched
     * goes by tag_send, to receives that tag_post was given, or up by
     * tag_unexpected. UNSUPPORTED: reason (PSC_REASON_MAX bytes) says why. */
    psc_status_t (*tag_ready)(psc_ep_t *ep, char *reason);
    /* The first message from now on whose bits fit goes to the first receive
     * that they fit; none is in between: what came before was given to
     * tag_unexpected already, or matches, too. The structure and the buffer
     * belong to the transport until done, or a cancel that came in time; an
     * ep_close leaves them there until the endpoint has stopped. NO_RESOURCE:
     * not now, keep the receive in software. */
    psc_status_t (*tag_post)(psc_ep_t *ep, psc_tag_recv_t *recv);
    /* PSC_OK: taken back, done is not called. PSC_ERR_INVALID: too late, it
     * has matched; done follows. */
    psc_status_t (*tag_cancel)(psc_ep_t *ep, psc_tag_recv_t *recv);
    /* As am_bcopy, but for what the bits match. Nothing but the payload
     * travels: sum(iov) <= max_bcopy. On one endpoint active messages and
     * these are delivered in the order in which they were sent; a receive
     * that has matched is done when its message's turn has come. */
    psc_status_t (*tag_send)(psc_ep_t *ep, uint64_t bits, const psc_iov_t *iov,
                             size_t n_iov);
    /* TAG, if it can (NULL: it cannot): as tag_send for one piece, not empty,
     * of up to max_put bytes and with the mark, which belongs to the transport
     * until comp fires. PSC_OK: a receive has it. UNSUPPORTED: none was there,
     * so the peer gets to know its bits, its length and its number, by which
     * both sides know it; returned at once, the piece is too long. */
    psc_status_t (*tag_put)(psc_ep_t *ep, uint64_t bits, const void *buffer,
                            size_t len, uint32_t *number_p, psc_comp_t *comp);

    /* EVENT: a descriptor that becomes readable when progress would find
     * something, provided that arm said PSC_OK since the last progress. The
     * core never reads it; progress clears what it signals. */
    int (*event_fd)(psc_iface_t *iface);
    /* PSC_OK: armed, the caller may sleep. PSC_ERR_NO_RESOURCE: something is
     * there already, poll again. Loses no wake-up: what arrives after the
     * last progress either fails arm or fires the descriptor. A progress uses
     * up what was armed, and so may an arm that fails; arming what is armed
     * already changes nothing. */
    psc_status_t (*arm)(psc_iface_t *iface);

    /* Or NULL: what the transport itself counts of this endpoint, for whoever
     * wants to know what became of it. Fills in at most `room`; returns how
     * many that were. The names stay where they are. */
    uint32_t (*ep_counters)(const psc_ep_t *ep, psc_counted_t *counters,
                            uint32_t room);
};

#endif
