/* The objects of the driver: operations, channels, the device. Each C file has
 * a header that says what it offers, and calls the files below it only:
 *
 *   device     opening and closing an interface
 *   event      one pass over the event queues, and what is due
 *   channel    a channel's life, and its rings
 *   match      events of the messages that the interface matches
 *   deliver    messages handed to the owner in the order of their numbers
 *   deferred   receives that are withheld from the interface
 *   source     which channels have their messages matched
 *   receive    buffers of the receive ring, and for messages without a receive
 *   tag        posted receives
 *   rma        puts and gets of regions, in fragments
 *   send       messages on their way out, and pings
 *   region     memory that peers may put to and get from
 *   backlog    entries that are unlinked, and events before their turn
 *   failure    the end of a channel that cannot go on
 *   fence      the states of a channel (pure)
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
    PSPTL_PING,     /* psptl_channel_t, in `ping` */
    PSPTL_TAG,      /* psptl_tag_t: a posted receive */
    PSPTL_OVERFLOW, /* psptl_buffer_t for a message without a receive */
    /* psptl_channel_t, in `matching`: search of messages without a receive */
    PSPTL_SEARCH
} psptl_kind_t;

/* First member of every object that an event can name. The flags are for
 * entries that one message uses up; see backlog.h. */
typedef struct psptl_op {
    psptl_kind_t kind;
    bool fetched; /* an event of the entry is in the backlog */
    bool unlinked; /* PtlMEUnlink has returned PTL_OK for the entry */
} psptl_op_t;

typedef enum psptl_send_state {
    PSPTL_SEND_FREE,
    PSPTL_SEND_WAITING, /* to be put, for the first time or again */
    PSPTL_SEND_FLYING /* put, and not acknowledged yet */
} psptl_send_state_t;

/* A buffer of a send ring, with the message in it. */
typedef struct psptl_send {
    psptl_op_t op;
    psptl_send_state_t state;
    psptl_channel_t *channel;
    uint8_t *bytes;
    uint32_t len;
    uint32_t number; /* number of the message in its channel */
    bool again; /* this message was put before */
    bool tagged; /* the target's interface matches the message, by `bits` */
    uint64_t bits;
    uint32_t word; /* the upper half of the header data */
    uint32_t drops; /* failed attempts, except attempts at a disabled entry */
} psptl_send_t;

/* A buffer of a receive ring, or for messages without a receive. The members
 * from `len` on describe the message in the buffer. */
typedef struct psptl_buffer {
    psptl_op_t op;
    bool posted; /* the interface may write to the buffer */
    psptl_channel_t *channel;
    uint8_t *bytes;
    ptl_handle_me_t me;
    bool aside; /* allocated for one message, and freed after it */
    size_t len;
    ptl_process_t initiator;
    /* 0 for a message to the owner; otherwise the word of a fence, see
     * deferred.h */
    uint32_t word;
    psptl_tagged_t message; /* describes a message without a receive */
} psptl_buffer_t;

typedef enum psptl_tag_state {
    PSPTL_TAG_HELD, /* withheld from the interface */
    PSPTL_TAG_LINKED, /* in a list of the interface */
    PSPTL_TAG_MATCHED /* a message is here; the owner is to be notified */
} psptl_tag_state_t;

/* A posted receive. */
struct psptl_tag {
    psptl_op_t op;
    psc_link_t link; /* in the channel's tags, then the device's lost_tags, or
                        its spare_tags */
    psptl_channel_t *channel;
    psptl_receive_t receive;
    ptl_handle_me_t me;
    psptl_tag_state_t state;
    /* number of the receive in the channel, by the time of posting */
    uint64_t place;
    psptl_tagged_t message; /* valid in the state MATCHED */
};

/* A put or get of a region, which is divided into fragments. */
typedef struct psptl_bulk {
    psptl_order_t order;
    psc_link_t link;
    psptl_channel_t *channel;
    size_t issued; /* bytes for which a fragment was issued */
    uint32_t flying; /* fragments in flight */
    bool tagged; /* a message that the target's interface matches */
    psptl_verdict_t verdict;
} psptl_bulk_t;

typedef struct psptl_fragment {
    psptl_op_t op;
    psc_link_t link;
    psptl_bulk_t *bulk;
    size_t at, len;
    uint32_t attempts; /* failed attempts */
    int64_t retry_at;
} psptl_fragment_t;

/* ---- a channel ---- */

/* The send ring. */
typedef struct psptl_sending {
    uint32_t n; /* buffers */
    psptl_send_t *ring;
    uint8_t *bytes; /* memory of all buffers */
    uint32_t next; /* number of the next message */
    uint32_t at; /* index of the buffer of the next message */
    uint32_t n_waiting; /* buffers in the state WAITING */
    psc_link_t waiting; /* in the device's list, if there are any */
    unsigned backoff; /* failed attempts in a row */
    int64_t retry_at; /* time at which the waiting buffers are put again */
} psptl_sending_t;

typedef struct psptl_buffers {
    uint32_t n;
    psptl_buffer_t *ring;
    uint8_t *bytes; /* memory of all buffers */
} psptl_buffers_t;

typedef struct psptl_receiving {
    psptl_buffers_t buffers; /* the receive ring */
    psc_link_t pending; /* in the device's list, if there are messages to
                           deliver without a further event */
} psptl_receiving_t;

/* Asks the peer's interface whether it is alive. */
typedef struct psptl_pinging {
    psptl_op_t op;
    bool flying;
    unsigned failed; /* pings in a row that met no entry of the peer */
    ptl_handle_me_t me; /* the entry that the peer's pings are put to */
} psptl_pinging_t;

/* Messages that the interface matches. */
typedef struct psptl_matching {
    uint32_t source; /* number in the match bits of every message of the peer;
                        0: nothing is matched, and `flaw` says why */
    const char *flaw;
    psptl_buffers_t overflows; /* for messages without a receive */
    psc_list_t tags; /* posted receives, in the order of their places */
    uint64_t places; /* receives posted so far */
    uint32_t n_tags; /* posted receives that have not been reported */
    uint32_t n_held; /* number of receives in the state HELD */
    uint32_t n_searching; /* searches whose event has not arrived */
    uint32_t n_between; /* messages that have left the interface's lists and
                           have not been handed to the owner */
    psptl_op_t search;
    bool given_up; /* messages that match from now on are lost */
} psptl_matching_t;

struct psptl_channel {
    psptl_device_t *device;
    void *owner; /* NULL after psptl_channel_destroy */
    psc_link_t link; /* in the device's channels, or its zombies */
    psptl_place_t peer;
    ptl_process_t peer_id;
    uint64_t bits; /* match bits of the channel's receive ring */
    bool open; /* the peer is known */
    bool failed;
    psptl_sending_t sending;
    psptl_receiving_t receiving;
    psc_reorder_t window; /* received messages, by their numbers */
    psptl_matching_t matching;
    psptl_fence_t fence;
    psptl_pinging_t ping;
    psc_list_t regions;
    uint32_t n_regions;
    uint32_t n_bulks; /* puts and gets that have not ended */
    uint32_t n_flying; /* messages, fragments and pings in flight */
    /* time at which the interface had given back all entries of a zombie; 0 if
     * it has entries */
    int64_t withdrawn_at;
    uint64_t counters[PSPTL_N_COUNTERS];
};

/* ---- the device ---- */

/* A portal table entry and its event queue. */
typedef struct psptl_entry {
    ptl_handle_eq_t eq;
    ptl_pt_index_t pt;
    bool open;
    /* flow control has disabled the entry; it is enabled again when the queue
     * is empty */
    bool disabled;
} psptl_entry_t;

/* An event that was taken from its queue before its turn. */
typedef struct psptl_late {
    ptl_event_t event;
    psptl_entry_t *entry;
    int status; /* result of PtlEQPoll */
} psptl_late_t;

typedef struct psptl_backlog {
    psptl_late_t *events; /* events in the places `head` to `n` - 1 */
    size_t head, n, room;
} psptl_backlog_t;

struct psptl_device {
    const psptl_provider_t *ni;
    const psptl_owner_t *owner;
    psptl_settings_t settings;
    ptl_handle_ni_t handle;
    ptl_ni_limits_t limits;
    ptl_process_t self;
    /* descriptor of all memory; its events go to the bulk queue */
    ptl_handle_md_t md;
    psptl_entry_t eager, bulk, tag;
    bool opened, bound;
    bool lossy; /* events were lost, or not understood */
    psptl_backlog_t backlog;
    uint64_t bits; /* counter of psptl_device_bits */
    uint32_t flying; /* operations whose events have not arrived */
    uint32_t flying_max;
    uint32_t n_bulks; /* puts and gets that have not ended */
    uint64_t n_delivered; /* messages handed to the owner */
    psc_list_t channels;
    psc_list_t zombies; /* destroyed channels to whose memory the interface
                           may write, or of which it may report events */
    psc_list_t waiting; /* channels with messages to be put */
    psc_list_t pending; /* channels with messages to be delivered */
    psc_list_t unsettled; /* channels that hold receives, or owe an answer */
    psc_list_t bulks; /* puts and gets with fragments still to be issued */
    psc_list_t ended_bulks; /* ended or lost, and to be reported to the owner */
    psc_list_t spare_bulks;
    psc_list_t spare_fragments, late_fragments;
    psptl_fragment_t *fragments;
    psc_list_t lost_tags; /* ended or lost, and to be reported to the owner */
    psc_list_t spare_tags;
    /* regions that were revoked or closed while in use */
    psc_list_t busy_regions;
    /* number of sources in use; the source given last */
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

/* The header data of a message: the sender's word, and the message's number. */
static inline ptl_hdr_data_t psptl_header_data(uint32_t word, uint32_t number)
{
    return (ptl_hdr_data_t)word << PSPTL_WORD_SHIFT | number;
}

/* An entry for one message of the channel's peer. Before the peer is known,
 * everybody who knows the bits can write there; the initiator is checked when
 * the message is delivered. */
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
