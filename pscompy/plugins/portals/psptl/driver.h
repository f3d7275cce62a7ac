/* The objects of the driver: operations, channels, the device. Each C file
 * calls the files below it only; match.h and channel.h declare what they offer:
 *
 *   device     opening and closing an interface
 *   event      one pass over the event queues, and what is due
 *   channel    a channel's life, and its rings
 *   match      events of the messages that the interface matches
 *   deliver    messages handed to the owner in the order of their numbers
 *   withhold   receives that are withheld from the interface
 *   source     on which channels the interface matches messages
 *   receive    buffers of the receive ring, and for messages without a receive
 *   tag        posted receives
 *   rma        puts and gets of regions, in fragments
 *   send       messages on their way out, and pings
 *   region     memory that peers may put to and get from
 *   backlog    entries that are unlinked, and events before their turn
 *   failure    the end of a channel that cannot go on
 *   fence      states of a channel that withholds receives; calls no other file
 *   provider   the functions of a library
 *
 * psptl.h is what the driver offers to its user. */
#pragma once

#include "fence.h"
#include "provider.h"
#include "pscompy/transport/kit/list.h"
#include "pscompy/transport/kit/reorder.h"
#include "psptl.h"

/* ---- operations ---- */

typedef enum psptl_kind {
    PSPTL_SEND,     /* psptl_send_t: a put of a message */
    PSPTL_BUFFER,   /* psptl_buffer_t of a receive ring */
    PSPTL_FRAGMENT, /* psptl_fragment_t: a put or get of a region */
    /* member `ping` of a psptl_channel_t: an empty put that asks whether the
     * peer is alive */
    PSPTL_PING,
    PSPTL_TAG, /* psptl_tag_t: a posted receive */
    /* psptl_buffer_t for messages that arrive before their receive */
    PSPTL_OVERFLOW,
    /* member `matching.search` of a psptl_channel_t: a PtlMESearch for a
     * message without a receive */
    PSPTL_SEARCH
} psptl_kind_t;

/* First member of every object to which the user_ptr of an event can point.
 * `fetched` and `unlinked` are used for list entries that one message uses up
 * (channel.h). */
typedef struct psptl_op {
    psptl_kind_t kind;
    /* an event that reports a message for the operation's list entry was taken
     * from its queue early, and waits in the backlog (channel.h) */
    bool fetched;
    /* PtlMEUnlink has returned PTL_OK for the operation's list entry */
    bool unlinked;
} psptl_op_t;

typedef enum psptl_send_state {
    PSPTL_SEND_FREE,
    /* the message is to be put, for the first time or again */
    PSPTL_SEND_WAITING,
    PSPTL_SEND_FLYING /* the message was put, and is not acknowledged yet */
} psptl_send_state_t;

/* A buffer of a send ring, with the message in it. */
typedef struct psptl_send {
    psptl_op_t op;
    psptl_send_state_t state;
    psptl_channel_t *channel;
    uint8_t *bytes;
    uint32_t len;
    uint32_t number; /* number of the message among the channel's messages */
    bool again; /* the message was put before, and did not arrive */
    /* the target's interface matches the message to a receive, by `bits` */
    bool tagged;
    uint64_t bits;
    uint32_t word; /* upper half of the header data of the put */
    /* failed attempts to put the message, except at a disabled table entry */
    uint32_t drops;
} psptl_send_t;

/* A buffer of a receive ring, or an overflow buffer for a message without a
 * receive. The members from `len` on describe the message in the buffer. */
typedef struct psptl_buffer {
    psptl_op_t op;
    bool posted; /* the interface may write to the buffer */
    psptl_channel_t *channel;
    uint8_t *bytes;
    ptl_handle_me_t me;
    /* the buffer was allocated for one message, and is freed after it */
    bool aside;
    size_t len;
    ptl_process_t initiator;
    /* 0 for a message to the owner; otherwise a fence or an answer to one, see
     * match.h */
    uint32_t word;
    /* the message in the buffer, if no receive matched it */
    psptl_tagged_t message;
} psptl_buffer_t;

typedef enum psptl_tag_state {
    PSPTL_TAG_HELD, /* the receive is withheld from the interface */
    PSPTL_TAG_LINKED, /* the receive is in a list of the interface */
    /* a message for the receive has arrived; the channel's owner is to be
     * notified */
    PSPTL_TAG_MATCHED
} psptl_tag_state_t;

/* A posted receive. */
struct psptl_tag {
    psptl_op_t op;
    /* link in the channel's list `tags`, or in the device's list `lost_tags` or
     * `spare_tags` */
    psc_link_t link;
    psptl_channel_t *channel;
    psptl_receive_t receive;
    ptl_handle_me_t me;
    psptl_tag_state_t state;
    /* number of the receive among the channel's receives, in the order of
     * posting */
    uint64_t place;
    /* the message that matched the receive; valid in the state MATCHED */
    psptl_tagged_t message;
};

/* A put or get of a region, which is divided into fragments. */
typedef struct psptl_bulk {
    psptl_order_t order;
    psc_link_t link;
    psptl_channel_t *channel;
    size_t issued; /* number of bytes for which a fragment was issued */
    uint32_t flying; /* number of fragments in flight */
    /* the put is a message that the target's interface matches to a receive */
    bool tagged;
    psptl_verdict_t verdict;
} psptl_bulk_t;

typedef struct psptl_fragment {
    psptl_op_t op;
    psc_link_t link;
    psptl_bulk_t *bulk;
    size_t at, len;
    uint32_t attempts; /* failed attempts to put or get the fragment */
    int64_t retry_at;
} psptl_fragment_t;

/* ---- a channel ---- */

/* The send ring of a channel: buffers for messages that go out. */
typedef struct psptl_sending {
    uint32_t n; /* number of buffers */
    psptl_send_t *ring;
    uint8_t *bytes; /* memory of all buffers */
    uint32_t next; /* number of the next message */
    uint32_t at; /* index in `ring` of the buffer for the next message */
    uint32_t n_waiting; /* number of buffers in the state PSPTL_SEND_WAITING */
    /* link in the device's list `waiting` while n_waiting > 0 */
    psc_link_t waiting;
    /* failed attempts in a row to put messages; they lengthen the wait */
    unsigned backoff;
    int64_t retry_at; /* time at which the waiting buffers are put again */
} psptl_sending_t;

typedef struct psptl_buffers {
    uint32_t n;
    psptl_buffer_t *ring;
    uint8_t *bytes; /* memory of all buffers */
} psptl_buffers_t;

typedef struct psptl_receiving {
    psptl_buffers_t buffers; /* the receive ring */
    /* link in the device's list `pending`, if the channel has messages to
     * deliver without a further event */
    psc_link_t pending;
} psptl_receiving_t;

/* State of the channel's pings: empty puts that ask whether the peer's
 * interface is alive. */
typedef struct psptl_pinging {
    psptl_op_t op;
    bool flying;
    bool hasty; /* patience_ns was not 0 when the last ping was sent */
    /* pings in a row that met no list entry of the peer's channel */
    unsigned failed;
    ptl_handle_me_t me; /* the list entry to which the peer's pings are put */
} psptl_pinging_t;

/* State of the messages and receives that the interface matches. */
typedef struct psptl_matching {
    /* number of this channel, which is in the match bits of every message from
     * the peer; 0: the interface matches nothing on this channel, and `flaw`
     * says why */
    uint32_t source;
    const char *flaw;
    /* overflow buffers, for messages that arrive before their receive */
    psptl_buffers_t overflows;
    psc_list_t tags; /* posted receives, in the order of posting */
    uint64_t places; /* number of receives posted so far */
    /* number of posted receives that were neither reported to the owner nor
     * cancelled */
    uint32_t n_tags;
    uint32_t n_withheld; /* number of receives in the state PSPTL_TAG_HELD */
    /* number of calls of PtlMESearch whose event has not arrived */
    uint32_t n_searching;
    /* number of messages that have left the interface's lists and have not been
     * handed to the owner */
    uint32_t n_between;
    psptl_op_t search;
    /* the channel was given up (psptl_match_abort): messages that match a
     * receive from now on are lost */
    bool given_up;
} psptl_matching_t;

struct psptl_channel {
    psptl_device_t *device;
    void *owner; /* argument of the upcalls; NULL after psptl_channel_destroy */
    psc_link_t link; /* link in the device's list `channels` or `zombies` */
    psptl_address_t peer;
    ptl_process_t peer_id;
    uint64_t bits; /* match bits of the channel's receive ring */
    bool open; /* the peer is known (psptl_channel_connect) */
    uint64_t patience_ns; /* as given to psptl_channel_connect */
    bool failed;
    psptl_sending_t sending;
    psptl_receiving_t receiving;
    /* received messages, to be delivered in the order of their numbers */
    psc_reorder_t window;
    psptl_matching_t matching;
    psptl_fence_t fence;
    psptl_pinging_t ping;
    psc_list_t regions;
    uint32_t n_regions;
    uint32_t n_bulks; /* puts and gets that have not ended */
    uint32_t n_flying; /* messages, fragments and pings in flight */
    /* time at which the interface had given back all entries of this channel,
     * after its destruction; 0 before that */
    int64_t withdrawn_at;
    uint64_t counters[PSPTL_N_COUNTERS];
};

/* ---- the device ---- */

/* A portal table entry and its event queue. */
typedef struct psptl_entry {
    ptl_handle_eq_t eq;
    ptl_pt_index_t pt;
    bool open;
    /* flow control has disabled the entry; it is enabled again when its event
     * queue is empty */
    bool disabled;
} psptl_entry_t;

/* An event in the backlog: it was taken from its event queue before its
 * turn. */
typedef struct psptl_late {
    ptl_event_t event;
    psptl_entry_t *entry;
    int status; /* what PtlEQPoll returned with the event */
} psptl_late_t;

typedef struct psptl_backlog {
    /* array of `room` places; those from `head` to `n` - 1 hold events */
    psptl_late_t *events;
    size_t head, n, room;
} psptl_backlog_t;

struct psptl_device {
    const psptl_provider_t *ni;
    const psptl_owner_t *owner;
    psptl_settings_t settings;
    ptl_handle_ni_t handle;
    ptl_ni_limits_t limits;
    ptl_process_t self;
    /* memory descriptor that spans all memory; its events go to the event queue
     * of the entry `bulk` */
    ptl_handle_md_t md;
    psptl_entry_t eager, bulk, tag;
    bool opened, bound;
    bool lossy; /* an event was lost, or was of an unknown type */
    psptl_backlog_t backlog;
    uint64_t bits; /* counter from which psptl_device_bits makes match bits */
    /* number of puts and gets of this side whose events have not arrived */
    uint32_t flying;
    uint32_t flying_max;
    uint32_t n_bulks; /* puts and gets that have not ended */
    uint64_t n_delivered; /* messages handed to the owner */
    psc_list_t channels;
    /* destroyed channels to whose memory the interface may still write, or of
     * which it may still report events */
    psc_list_t zombies;
    psc_list_t waiting; /* channels with messages that wait to be put */
    /* channels with messages that wait to be delivered to the owner */
    psc_list_t pending;
    /* channels that withhold receives, or owe an answer to the peer's fence
     * (match.h) */
    psc_list_t unsettled;
    /* puts and gets of which fragments are still to be issued */
    psc_list_t bulks;
    /* puts and gets that have ended, to be reported by the upcall `done` */
    psc_list_t ended_bulks;
    psc_list_t spare_bulks;
    psc_list_t spare_fragments, late_fragments;
    psptl_fragment_t *fragments;
    /* receives that were given up without a message, to be reported to their
     * owners */
    psc_list_t lost_tags;
    psc_list_t spare_tags;
    /* regions that were revoked or closed while a put or get of a peer used
     * them */
    psc_list_t busy_regions;
    /* `n_sources`: number of sources (numbers of channels in match bits,
     * channel.h) in use; `last_source`: the source that was assigned last */
    uint32_t n_sources, last_source;
    uint64_t counters[PSPTL_N_COUNTERS];
};

/* ---- counting ---- */

static inline void psptl_device_count(psptl_device_t *device,
                                      psptl_counter_t counter)
{
    device->counters[counter]++;
}

static inline void psptl_count_many(psptl_channel_t *channel,
                                    psptl_counter_t counter, uint64_t n)
{
    channel->counters[counter] += n;
    channel->device->counters[counter] += n;
}

static inline void psptl_count(psptl_channel_t *channel,
                               psptl_counter_t counter)
{
    psptl_count_many(channel, counter, 1);
}

/* ---- match bits and header data ---- */

#define PSPTL_SOURCE_SHIFT 32
#define PSPTL_SOURCE_MASK ((ptl_match_bits_t)0xffff << PSPTL_SOURCE_SHIFT)
#define PSPTL_WORD_SHIFT 32

static inline ptl_match_bits_t psptl_source_bits(uint32_t source)
{
    return (ptl_match_bits_t)source << PSPTL_SOURCE_SHIFT;
}

/* Returns the header data of a message. Upper half: `word`, which is the number
 * of messages that the sender has received, a fence or an answer to one
 * (match.h), or 0. Lower half: the message's number. */
static inline ptl_hdr_data_t psptl_header_data(uint32_t word, uint32_t number)
{
    return (ptl_hdr_data_t)word << PSPTL_WORD_SHIFT | number;
}

/* Returns a list entry that takes one message of the channel's peer. Before the
 * peer is known, everybody who knows the match bits can write to it; the
 * initiator is checked when the message is delivered. */
static inline ptl_me_t psptl_me_once(const psptl_channel_t *channel,
                                     void *start, size_t len,
                                     ptl_match_bits_t bits)
{
    ptl_me_t me = {
        .start = start,
        .length = len,
        .ct_handle = PTL_CT_NONE,
        .uid = PTL_UID_ANY,
        .options = PTL_ME_OP_PUT | PTL_ME_USE_ONCE | PTL_ME_EVENT_LINK_DISABLE |
                   PTL_ME_EVENT_UNLINK_DISABLE,
        .match_id = {.phys = {.nid = PTL_NID_ANY, .pid = PTL_PID_ANY}},
        .match_bits = bits,
    };

    if (channel->open)
        me.match_id = channel->peer_id;
    return me;
}
