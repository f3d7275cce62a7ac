/* What the files of the driver share; its users include psptl.h.
 *
 *   psptl.c    the table of the driver, and its library
 *   system.c   the same over the system's library, if there is one
 *   device.c   the interface: table entries, event queues, limits
 *   event.c    what has happened, and who gets to know
 *   channel.c  a channel's life, and its rings
 *   send.c     messages on their way out, and those that did not arrive
 *   arrive.c   messages that came in
 *   tag.c      messages that the interface matches
 *   overflow.c those of them that came before their receive
 *   hold.c     receives that the interface is not to have now
 *   backlog.c  entries that are taken back, and events before their turn
 *   region.c   memory that peers may put to and get from
 *   bulk.c     puts and gets, in fragments
 *   window.h   messages that overtook each other */
#ifndef PSCOMPY_PORTALS_DRIVER_H
#define PSCOMPY_PORTALS_DRIVER_H

#include "pscompy/transport/kit/list.h"
#include "provider.h"
#include "psptl.h"
#include "reorder.h"

#define PSPTL_FRAGMENTS 256u /* under way per interface, at most */
#define PSPTL_BATCH 64u      /* events taken at a time from each queue */

/* ---- operations ---- */

typedef enum psptl_kind {
    PSPTL_SEND,
    PSPTL_BUFFER,
    PSPTL_FRAGMENT,
    PSPTL_PING,
    PSPTL_TAG,
    PSPTL_OVERFLOW,
    PSPTL_SEARCH
} psptl_kind_t;

/* Begins whatever an event may be about. The flags are those of an entry that
 * one message uses up; see backlog.c. */
typedef struct psptl_op {
    psptl_kind_t kind;
    bool fetched;  /* its event is in the backlog */
    bool unlinked; /* the interface says that it has given the entry back */
} psptl_op_t;

typedef enum psptl_send_state {
    PSPTL_SEND_FREE,
    PSPTL_SEND_WAITING, /* to be put, again or behind one that is */
    PSPTL_SEND_FLYING   /* put; the acknowledgement is to come */
} psptl_send_state_t;

/* A buffer of a send ring. */
typedef struct psptl_send {
    psptl_op_t op;
    psptl_send_state_t state;
    psptl_channel_t *channel;
    uint8_t *bytes;
    uint32_t len;
    uint32_t number;
    bool again;     /* it was put before */
    bool tagged;    /* the target matches it, by these */
    uint64_t bits;
    uint32_t word;
    uint32_t drops; /* how often in vain, but for a disabled table entry */
} psptl_send_t;

/* A buffer of a receive ring, or for messages without a receive. */
typedef struct psptl_buffer {
    psptl_op_t op;
    bool posted; /* the interface may write to it */
    psptl_channel_t *channel;
    uint8_t *bytes;
    size_t len;              /* of what it holds */
    ptl_process_t initiator; /* of what it holds */
    ptl_handle_me_t me;
    uint32_t word;           /* of what it holds; 0: it is for the owner */
    bool aside;              /* made for one message; see hold.c */
    psptl_tagged_t message;  /* for those without a receive: what it holds */
} psptl_buffer_t;

typedef enum psptl_tag_state {
    PSPTL_TAG_HELD,   /* kept back from the interface */
    PSPTL_TAG_LINKED, /* the interface has it */
    PSPTL_TAG_MATCHED /* the owner is to be told */
} psptl_tag_state_t;

/* A receive that the interface matches. */
struct psptl_tag {
    psptl_op_t op;
    psc_link_t link;    /* channel's tags; then device's lost, or spare */
    psptl_channel_t *channel;
    psptl_receive_t receive;
    ptl_handle_me_t me;
    psptl_tag_state_t state;
    uint64_t place;         /* among the receives of the channel */
    psptl_tagged_t message; /* if it has matched */
};

/* A put or get of a region; one descriptor, however many fragments. */
typedef struct psptl_bulk {
    psptl_order_t order;
    psc_link_t link;
    psptl_channel_t *channel;
    size_t issued;
    uint32_t flying;
    bool tagged; /* it is a message that is to be matched */
    psptl_verdict_t verdict;
} psptl_bulk_t;

typedef struct psptl_fragment {
    psptl_op_t op;
    psc_link_t link;
    psptl_bulk_t *bulk;
    size_t at, len;
    uint32_t attempts;
    int64_t retry_at;
} psptl_fragment_t;

/* ---- the interface ---- */

/* A portal table entry and its event queue. */
typedef struct psptl_entry {
    ptl_handle_eq_t eq;
    ptl_pt_index_t pt;
    bool open;
    bool disabled; /* the interface has closed it: drain, then enable */
} psptl_entry_t;

/* An event that was taken from its queue before its turn. */
typedef struct psptl_late {
    ptl_event_t event;
    psptl_entry_t *entry;
    int status; /* of PtlEQPoll */
} psptl_late_t;

typedef struct psptl_backlog {
    psptl_late_t *events; /* from head to n */
    size_t head, n, room;
} psptl_backlog_t;

struct psptl_device {
    const psptl_provider_t *ni; /* whose functions are called */
    const psptl_owner_t *owner;
    psptl_settings_t settings;
    ptl_handle_ni_t handle;
    ptl_ni_limits_t limits;
    ptl_process_t self;
    ptl_handle_md_t md; /* all memory; its events go to the bulk queue */
    psptl_entry_t eager, bulk, tag;
    bool opened, bound;
    bool lossy; /* events were lost, or not understood */
    psptl_backlog_t backlog;
    uint64_t bits;      /* of which the next match bits are made */
    uint32_t flying;    /* operations whose events are to come */
    uint32_t flying_max;
    uint32_t n_bulks;   /* puts and gets that have not ended */
    uint64_t n_delivered; /* messages that the owner got */
    psc_list_t channels;
    psc_list_t zombies; /* channels that were destroyed: the interface may
                           still write to them, or tell of them */
    psc_list_t waiting; /* channels with something to be put */
    psc_list_t pending; /* channels with messages from before they opened */
    psc_list_t bulks;   /* puts and gets that are not all under way */
    psc_list_t ended_bulks; /* the owner is to be told */
    psc_list_t spare_bulks;
    psc_list_t spare_fragments, late_fragments;
    psptl_fragment_t *fragments;
    psc_list_t lost_tags, spare_tags;
    psc_list_t unsettled; /* channels that hold receives, or owe an answer */
    psc_list_t busy_regions; /* were to be taken back while in use */
    uint32_t n_sources, last_source; /* sources in use, and given last */
    uint64_t counters[PSPTL_N_COUNTERS];
};

static inline void psptl_device_count(psptl_device_t *device,
                                      psptl_counter_t counter)
{
    device->counters[counter]++;
}

uint64_t psptl_device_bits(psptl_device_t *device);

const char *psptl_fault_name(ptl_ni_fail_t fault);

/* ---- entries that are taken back ---- */

/* Move all events of a queue to the backlog. False: no memory for them. */
bool psptl_backlog_fetch(psptl_device_t *device, psptl_entry_t *entry);
/* The oldest event; only if there is one. */
psptl_late_t psptl_backlog_take(psptl_device_t *device);
void psptl_backlog_close(psptl_backlog_t *backlog);
/* Between two fetches of its queue: unlink the entry of an operation. */
void psptl_op_unlink(psptl_device_t *device, psptl_op_t *op,
                     ptl_handle_me_t me, unsigned tries);

static inline bool psptl_backlog_empty(const psptl_device_t *device)
{
    return device->backlog.n == 0;
}

/* After the second fetch: no message has used the entry, and none will. */
static inline bool psptl_op_back(const psptl_op_t *op)
{
    return op->unlinked && !op->fetched;
}

/* ---- channels ---- */

struct psptl_channel {
    psptl_device_t *device;
    void *owner;        /* NULL: it was destroyed */
    psc_link_t link;    /* device's channels, or its zombies */
    psc_link_t waiting; /* device's waiting */
    psc_link_t pending; /* device's pending */
    psptl_place_t peer;
    ptl_process_t peer_id;
    uint64_t bits;
    bool open;          /* the peer is known */
    bool failed;
    uint32_t n_sends, n_buffers;
    psptl_send_t *sends;
    psptl_buffer_t *buffers;
    uint8_t *send_bytes, *buffer_bytes;
    uint32_t next;      /* number of the next message */
    uint32_t at;        /* its buffer */
    uint32_t n_waiting; /* messages */
    uint32_t n_flying;  /* messages, fragments, pings */
    uint32_t n_regions;
    psc_list_t regions;
    uint32_t n_bulks;   /* that have not ended */
    unsigned backoff;   /* how often in a row nothing arrived */
    int64_t retry_at;
    psptl_window_t window;
    uint32_t n_windowed; /* messages in it */
    psptl_op_t ping;
    bool pinging;
    unsigned vain_pings; /* in a row */
    ptl_handle_me_t ping_me;
    uint32_t source;     /* its messages' match bits have it; 0: none are
                            matched, because of: */
    const char *tag_flaw;
    psptl_buffer_t *overflows;
    uint8_t *overflow_bytes;
    psc_list_t tags;
    uint32_t n_tags;     /* receives of which the owner has yet to hear */
    uint32_t n_searching; /* searches whose event has not come */
    uint32_t n_between;  /* messages that are in no list of the interface any
                            more and not with the owner yet */
    psptl_op_t search;
    bool given_up;       /* what has matched is lost */
    uint64_t places;     /* of receives, so far */
    uint32_t n_held;
    bool suspended;      /* all receives are held, until a fence is answered */
    bool rewound;        /* also those that match now give theirs back */
    bool asked;          /* a fence is on its way */
    bool parting;        /* nothing follows but the owner's goodbye */
    uint32_t fence, answer; /* the number of ours, and of the peer's that is
                               to be answered; 0: there is none */
    psc_link_t unsettled;
    int64_t withdrawn_at; /* all its entries are back since; 0: not all are */
    uint64_t counters[PSPTL_N_COUNTERS]; /* the device's are those of all */
};

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

/* The header data: a message's number, and a word of its sender's above. */
#define PSPTL_WORD_SHIFT 32

/* The bits of a source among the match bits; psptl_place_t has the number. */
#define PSPTL_SOURCE_SHIFT 32
#define PSPTL_SOURCE_MASK ((ptl_match_bits_t)0xffff << PSPTL_SOURCE_SHIFT)

static inline ptl_match_bits_t psptl_source_bits(uint32_t source)
{
    return (ptl_match_bits_t)source << PSPTL_SOURCE_SHIFT;
}

/* A message's header data: the sender's word, and the message's number. */
static inline ptl_hdr_data_t psptl_header_data(uint32_t word, uint32_t number)
{
    return (ptl_hdr_data_t)word << PSPTL_WORD_SHIFT | number;
}

/* An entry for one message of the channel's peer. Whoever knows the bits may
 * write there before the peer is known; whose it was is looked at when it is
 * delivered. */
static inline ptl_me_t psptl_me_once(const psptl_channel_t *channel,
                                     void *start, size_t len,
                                     ptl_match_bits_t bits)
{
    ptl_me_t me = {
        .start = start,
        .length = len,
        .ct_handle = PTL_CT_NONE,
        .uid = PTL_UID_ANY,
        .options = PTL_ME_OP_PUT | PTL_ME_USE_ONCE |
                   PTL_ME_EVENT_LINK_DISABLE | PTL_ME_EVENT_UNLINK_DISABLE,
        .match_id = {.phys = {.nid = PTL_NID_ANY, .pid = PTL_PID_ANY}},
        .match_bits = bits,
    };

    if (channel->open)
        me.match_id = channel->peer_id;
    return me;
}

void psptl_channel_fail(psptl_channel_t *channel, psptl_verdict_t verdict,
                        const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Free zombies that nobody writes to or tells of any more. */
void psptl_channel_reap(psptl_device_t *device);
/* How many zombies there are to which the interface may still write. */
unsigned psptl_channel_held(const psptl_device_t *device);
/* Free it, whatever is under way: the interface is closed. */
void psptl_channel_free(psptl_channel_t *channel);

/* ---- messages ---- */

void psptl_send_event(psptl_send_t *send, const ptl_event_t *event);
/* A message did not arrive; drops: how often in vain, but for a disabled table
 * entry. False: that was the last time, and the channel fails. */
bool psptl_send_bear(psptl_channel_t *channel, ptl_ni_fail_t fault,
                     uint32_t *drops);
/* The interface took no put or get. A full one is no failure. */
void psptl_put_failed(psptl_channel_t *channel, int status);
/* Put what is waiting, as far as it is due. */
void psptl_send_again(psptl_device_t *device);
void psptl_ping_event(psptl_channel_t *channel, const ptl_event_t *event);
/* Nanoseconds until the next attempt, after so many in vain. */
int64_t psptl_backoff(unsigned attempts);

/* Its turn has come, or comes, by its number; false: that was no number. */
bool psptl_arrive_in_order(psptl_channel_t *channel, psptl_op_t *op,
                           uint32_t number);
bool psptl_buffer_post(psptl_buffer_t *buffer);
/* Between two fetches: ask the interface for it. */
void psptl_buffer_unlink(psptl_buffer_t *buffer);
/* After the second one. False: the interface is writing to it, or has and
 * tells soon. */
bool psptl_buffer_back(psptl_buffer_t *buffer);
void psptl_arrive_event(psptl_buffer_t *buffer, const ptl_event_t *event);
/* Deliver what came before its peer was known. */
void psptl_arrive_pending(psptl_device_t *device);

/* ---- what the interface matches ---- */

/* A source for a new channel, or the reason why it has none. */
void psptl_tag_source(psptl_channel_t *channel);
/* It takes no more events; nobody else gets its number before it is freed. */
void psptl_tag_source_leave(psptl_channel_t *channel);
/* Both sides are known: match, if both do. False: not enough entries. */
bool psptl_tag_connect(psptl_channel_t *channel);
void psptl_tag_event(const ptl_event_t *event);
/* The turn of an operation of kind TAG or OVERFLOW has come. */
void psptl_tag_deliver(psptl_op_t *op);
/* What has matched is lost; the owner is told from the next poll. */
void psptl_tag_abort(psptl_channel_t *channel);
unsigned psptl_tag_tell(psptl_device_t *device);
/* As for a buffer, for all receives. */
void psptl_tags_unlink(psptl_channel_t *channel);
bool psptl_tags_back(psptl_channel_t *channel);
void psptl_tag_free(psptl_channel_t *channel);
void psptl_tag_close(psptl_device_t *device);
/* Give it to the interface; false: that failed. */
bool psptl_tag_link(psptl_tag_t *tag);
/* Between two fetches: ask for it. */
void psptl_tag_unlink(psptl_tag_t *tag);
/* The one door between the states of a receive. */
void psptl_tag_enter(psptl_tag_t *tag, psptl_tag_state_t state);
psptl_tagged_t psptl_tag_message(const ptl_event_t *event, bool unexpected);
/* False: its number was no number, and the channel fails. */
bool psptl_tag_arrive(psptl_channel_t *channel, psptl_op_t *op,
                      const ptl_event_t *event);
/* A receive that was held gets the message, whose turn has come. */
void psptl_tag_get(psptl_tag_t *tag, const psptl_buffer_t *buffer);

/* False: no memory, or no more entries. */
bool psptl_overflow_open(psptl_channel_t *channel);
void psptl_overflow_unlink(psptl_channel_t *channel);
bool psptl_overflow_back(psptl_channel_t *channel);
void psptl_overflow_free(psptl_channel_t *channel);
/* What it held is not needed any more. */
void psptl_overflow_again(psptl_buffer_t *buffer);
/* The buffer that a message lies in; NULL: none of the channel's. */
psptl_buffer_t *psptl_overflow_at(const psptl_channel_t *channel,
                                  const void *start);
void psptl_overflow_event(psptl_buffer_t *buffer, const ptl_event_t *event);
void psptl_overflow_found(psptl_channel_t *channel, const ptl_event_t *event);
void psptl_overflow_deliver(psptl_buffer_t *buffer);

/* ---- what the interface is not to match now ---- */

/* May a receive that comes now go to the interface? */
static inline bool psptl_hold_nothing(const psptl_channel_t *channel)
{
    return channel->n_between == 0 && channel->n_held == 0 &&
           !channel->suspended;
}

/* The receive waits here for its message, or until the channel is settled. */
void psptl_hold(psptl_tag_t *tag);
/* The first receive that is held and wants this message; NULL: none. */
psptl_tag_t *psptl_hold_find(psptl_channel_t *channel, uint64_t bits);
/* Take all receives back from the interface, whose table entry is closed.
 * False: not yet, some have matched and it is yet to tell of them. */
bool psptl_hold_all(psptl_device_t *device);
/* The entry is open again. */
void psptl_hold_ask(psptl_device_t *device);
/* The turn of this has come, while others that follow it are here already: if
 * one of them got its receive, all that have one give it back, this one, too.
 * False: not all have yet; it is tried again from the next poll. */
bool psptl_hold_may_deliver(psptl_channel_t *channel, const psptl_op_t *op);
/* A message goes from its receive into a buffer of its own, and the receive is
 * held. NULL: no memory, and the channel fails. */
psptl_buffer_t *psptl_hold_aside(psptl_tag_t *tag);
/* The same for one in an overflow buffer, which goes back to the interface. */
psptl_buffer_t *psptl_hold_buffer(psptl_buffer_t *buffer);
/* What the driver's own messages say. */
void psptl_hold_told(psptl_channel_t *channel, uint32_t word);
/* Ask and answer, and give to the interface what it may have again. */
void psptl_hold_settle(psptl_device_t *device);
/* Messages set aside are of no use any more. */
void psptl_hold_free(psptl_channel_t *channel);

/* ---- memory ---- */

/* The channel goes, its regions stay. */
void psptl_region_orphan(psptl_channel_t *channel);
/* Free those that were closed in use and are not any more. */
void psptl_region_reap(psptl_device_t *device);
/* Free all that were closed: the interface is, too. */
void psptl_region_free_closed(psptl_device_t *device);

bool psptl_bulk_open(psptl_device_t *device);
void psptl_bulk_close(psptl_device_t *device);
void psptl_bulk_event(psptl_fragment_t *fragment, const ptl_event_t *event);
/* Put and get what is waiting. */
void psptl_bulk_go_on(psptl_device_t *device);
/* Tell the owner of those that have ended; returns their number. */
unsigned psptl_bulk_tell(psptl_device_t *device);
/* End those that are not under way. */
void psptl_bulk_abort(psptl_channel_t *channel);

#endif
