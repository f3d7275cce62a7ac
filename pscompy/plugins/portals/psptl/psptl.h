/* psptl: point-to-point channels over Portals 4. The driver does not know what
 * a message means, or who talks to whom. Its users see no types of Portals.
 *
 * An interface has portal table entries with an event queue each. To the
 * eager one go messages, into the receive ring of the channel that their match
 * bits name. To the bulk one go puts and gets, into the region that theirs
 * name, without an event at the target; its queue holds what this side gets to
 * hear of its own operations, whose number is bounded, so that a flood of
 * messages cannot crowd out an acknowledgement. To the tag one go messages that
 * the interface matches, to receives of the owner or, where none fits, to the
 * overflow buffers of their channel; see tag.c. */
#ifndef PSCOMPY_PORTALS_PSPTL_H
#define PSCOMPY_PORTALS_PSPTL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PSPTL_EXTRA_BUFFERS 6u /* of a receive ring: for messages outside the
                                  window of the owner; see portals.h. Two are
                                  the driver's: a fence and an answer */
#define PSPTL_REASON_MAX 256u
#define PSPTL_SECRET_SIZE 16u
#define PSPTL_FDS 3u /* descriptors of an interface, at most */

typedef struct psptl_device psptl_device_t;
typedef struct psptl_channel psptl_channel_t;

typedef enum psptl_verdict {
    PSPTL_OK,
    PSPTL_REFUSED,   /* the target has no such memory */
    PSPTL_UNCLAIMED, /* the target has no receive for it */
    PSPTL_LOST,      /* nothing arrives there */
    PSPTL_BROKEN     /* the interface, or a peer, does what it must not */
} psptl_verdict_t;

/* ---- settings ---- */

typedef enum psptl_choice {
    PSPTL_CHOICE_AUTO,
    PSPTL_CHOICE_SYSTEM,
    PSPTL_CHOICE_SOFTWARE
} psptl_choice_t;

typedef struct psptl_settings {
    psptl_choice_t provider;
    const char *interface; /* its number, or an IPv4 address, which is the
                              number of an interface of the software NI; "":
                              the default one */
    size_t buffer_size;
    uint32_t sendq, recvq; /* buffers of a channel's rings */
    uint32_t overflows; /* buffers for messages without receive */
    uint32_t eq_size;
    uint32_t retries;  /* of a message that was dropped */
    size_t fragment;   /* most bytes of one put or get */
    uint32_t regions;  /* that one channel may have open */
    uint32_t foster;   /* further polls while bulk data is under way */
    bool matching;     /* in the interface */
} psptl_settings_t;

/* ---- what is counted ---- */

#define PSPTL_COUNTER_LIST(X)                                                  \
    X(puts)            /* messages put, again or not */                        \
    X(arrived)         /* messages delivered in order */                       \
    X(dropped)         /* puts of messages that were refused or lost */        \
    X(disabled)        /* puts that met a disabled table entry */              \
    X(resends)         /* messages put again */                                \
    X(enables)         /* times that ours was drained and enabled again */     \
    X(tag_enables)     /* of these, that for messages to be matched */         \
    X(early)           /* messages that overtook an earlier one */             \
    X(duplicates)      /* messages that had come before */                     \
    X(ring_full)       /* sends that found no free buffer */                   \
    X(event_room)      /* puts and gets that waited for event room */          \
    X(fragments)       /* puts and gets of regions */                          \
    X(fragment_resends)                                                        \
    X(regions)         /* opened for peers */                                  \
    X(regions_refused) /* beyond what one channel may have open */             \
    X(foster_polls)    /* further polls */                                     \
    X(tag_puts)        /* messages put that the target matches */              \
    X(tag_direct)      /* of these, those put from where they are */           \
    X(tag_posts)       /* receives that the interface got to match */          \
    X(tag_refused)     /* that it did not get: see n_between in tag.c */       \
    X(tag_matched)     /* messages that landed in their receive */             \
    X(tag_claimed)     /* that a receive found in an overflow buffer */        \
    X(tag_overflows)   /* messages without receive, handed up */               \
    X(tag_aside)       /* of these, that waited in memory of their own */      \
    X(tag_held)        /* receives that were kept back from the interface */   \
    X(tag_kept)        /* messages that one of these got */                    \
    X(tag_copied)      /* bytes that were copied for receives */               \
    X(tag_fences)      /* answers after which receives went back there */      \
    X(tag_rewinds)     /* times that messages had to leave their receives */   \
    X(pings)

typedef enum psptl_counter {
#define PSPTL_COUNTER_ENUM(name) PSPTL_COUNTER_##name,
    PSPTL_COUNTER_LIST(PSPTL_COUNTER_ENUM)
#undef PSPTL_COUNTER_ENUM
        PSPTL_N_COUNTERS
} psptl_counter_t;

/* ---- who owns the channels ---- */

/* A message that was to be matched. */
typedef struct psptl_tagged {
    uint64_t bits;
    uint32_t word;        /* the sender's, which comes with each */
    const uint8_t *bytes; /* where no receive got it */
    size_t len;           /* of the message, whatever the receive's */
    uint32_t number;      /* of its channel */
    bool missed;          /* tag_put found no receive: no bytes are here */
} psptl_tagged_t;

/* Called from device_poll; `failed` from any call. */
typedef struct psptl_owner {
    /* The next message of a channel; gone on return. */
    void (*arrived)(void *owner, const uint8_t *bytes, size_t len);
    /* The next message of a channel is one that was to be matched: cookie is
     * the receive's that got it, or NULL: none did, and it is gone on return.
     * Of a receive that has matched in vain the verdict tells. */
    void (*tagged)(void *owner, void *cookie, const psptl_tagged_t *message,
                   psptl_verdict_t verdict);
    /* A buffer of its send ring is free again. */
    void (*room)(void *owner);
    /* Nothing goes any more; told once. */
    void (*failed)(void *owner, psptl_verdict_t verdict, const char *reason);
    /* A put or get has ended; `cookie` is that of its order. */
    void (*done)(void *cookie, psptl_verdict_t verdict);
} psptl_owner_t;

/* Where a channel's end is. */
typedef struct psptl_place {
    uint32_t nid, pid;
    uint32_t eager, bulk, tag; /* portal table indices */
    uint32_t source;           /* in the match bits; 0: nothing is matched */
    uint64_t bits;
    uint8_t secret[PSPTL_SECRET_SIZE]; /* opens the interface to a peer */
} psptl_place_t;

/* Memory that a peer may put to and get from. */
typedef struct psptl_region {
    uint64_t bits;
    size_t len;
    void *base;
} psptl_region_t;

/* Of the match bits: a message with this, if not empty, is one of tag_put.
 * Receives ignore it. */
#define PSPTL_TAG_DIRECT 0x80000000ull

/* A receive that the interface is to match. */
typedef struct psptl_receive {
    void *cookie;
    uint64_t match, ignore; /* the source's bits are the driver's */
    void *base;
    size_t len;
} psptl_receive_t;

typedef struct psptl_tag psptl_tag_t; /* one that was posted */

/* A put or get of a region, or a put that is to be matched. */
typedef struct psptl_order {
    void *cookie;
    uint8_t *local;
    size_t len;
    uint64_t bits, offset; /* of the region, and in it */
    uint32_t word, number; /* of what is to be matched; the latter is told */
    bool get;
} psptl_order_t;

/* ---- devices ---- */

/* Returns whether the build and this machine have a library of Portals 4. */
bool psptl_has_library(void);

/* Opens an interface. Returns NULL with the reason, and leaves nothing behind,
 * if that fails. */
psptl_device_t *psptl_device_open(const psptl_settings_t *settings,
                                  const psptl_owner_t *owner, char *reason,
                                  size_t room);
/* Closes the interface and frees all channels, except those to whose memory
 * the interface may still write. Returns the number of these. */
unsigned psptl_device_close(psptl_device_t *device);
/* The provider's name: "system" or "software". */
const char *psptl_device_name(const psptl_device_t *device);
/* Handles events, and sends what is due. Returns the number of events. */
unsigned psptl_device_poll(psptl_device_t *device);
/* The descriptors of the event queues. They become readable when an event
 * arrives after psptl_device_arm returned true. Returns their number; 0 if the
 * library has none. */
unsigned psptl_device_fds(psptl_device_t *device, int fds[PSPTL_FDS]);
/* Returns false if there is an event already. */
bool psptl_device_arm(psptl_device_t *device);
/* When psptl_device_poll has something to do even without an event; INT64_MAX
 * if never. */
int64_t psptl_device_deadline(const psptl_device_t *device);
const uint64_t *psptl_device_counters(const psptl_device_t *device);

/* ---- channels ---- */

/* Creates a channel, whose receive ring is posted at once. Returns NULL with
 * the reason if memory or entries are short. */
psptl_channel_t *psptl_channel_create(psptl_device_t *device, void *owner,
                                      char *reason, size_t room);
/* The channel's own end, for its peer. */
void psptl_channel_place(const psptl_channel_t *channel,
                         psptl_place_t *place_p);
/* Names the peer. Messages that arrived before are delivered by the next
 * poll. */
void psptl_channel_connect(psptl_channel_t *channel,
                           const psptl_place_t *peer);
/* Returns true if every message, put and get has been acknowledged or given
 * up. */
bool psptl_channel_idle(const psptl_channel_t *channel);
/* Gives up every message, put and get that is not in flight. */
void psptl_channel_abort(psptl_channel_t *channel);
/* Announces that the owner sends at most one more message, a goodbye: the
 * driver sends no fence after this. */
void psptl_channel_part(psptl_channel_t *channel);
/* Ends all calls to the owner. The memory is freed when the interface cannot
 * write to it any more. */
void psptl_channel_destroy(psptl_channel_t *channel);
/* Asks the peer's interface whether it is alive. */
void psptl_channel_ping(psptl_channel_t *channel);
/* Counters of one channel; those of the interface as a whole are the same for
 * all of its channels. */
void psptl_channel_counters(const psptl_channel_t *channel,
                            uint64_t values[PSPTL_N_COUNTERS]);

/* ---- messages ---- */

/* Returns the buffer for the next message, or NULL if the send ring is full.
 * The buffer stays free until psptl_send_end or psptl_tag_send. */
uint8_t *psptl_send_begin(psptl_channel_t *channel);
void psptl_send_end(psptl_channel_t *channel, size_t len);

/* Returns NULL if the interface matches messages of this channel, else the
 * reason why it does not; valid once the peer is known. */
const char *psptl_tag_flaw(const psptl_channel_t *channel);
/* Sends the buffer of psptl_send_begin as a message that the peer's interface
 * matches, in one order with the other messages. */
void psptl_tag_send(psptl_channel_t *channel, size_t len, uint64_t bits,
                    uint32_t word);
/* Sends a long message from where it is; its bits contain PSPTL_TAG_DIRECT.
 * `done` reports UNCLAIMED if the peer had no receive for it. Returns REFUSED
 * if it cannot be put now, UNCLAIMED if it is too long for one put. */
psptl_verdict_t psptl_tag_put(psptl_channel_t *channel, psptl_order_t *order);
/* Posts a receive. Returns NULL if the interface does not take it now; else
 * `tagged` reports it, unless it is cancelled before. */
psptl_tag_t *psptl_tag_post(psptl_channel_t *channel,
                            const psptl_receive_t *receive);
/* Returns false if the receive has matched. */
bool psptl_tag_cancel(psptl_tag_t *tag);

/* ---- regions ---- */

/* Opens memory to the peer of the channel, or to everybody if it is NULL.
 * Returns NULL if the channel has too many regions, or if the interface takes
 * no more entries. */
psptl_region_t *psptl_region_open(psptl_device_t *device,
                                  psptl_channel_t *channel, void *base,
                                  size_t len);
/* Closes the memory to new puts and gets. Returns false if one is in progress,
 * which lasts until the peer finishes or is lost: ask again after a poll;
 * psptl_device_deadline provides for one. */
bool psptl_region_revoke(psptl_device_t *device, psptl_region_t *region);
/* Revokes the region, waiting a little if necessary; the driver frees it.
 * Returns false if a peer may still use the memory. */
bool psptl_region_close(psptl_device_t *device, psptl_region_t *region);
/* Puts to or gets from a region of the peer. Returns false if memory is
 * short. */
bool psptl_bulk_start(psptl_channel_t *channel, const psptl_order_t *order);

#endif
