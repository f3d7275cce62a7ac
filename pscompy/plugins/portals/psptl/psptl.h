/* psptl: point-to-point channels over Portals 4. The driver does not know what
 * a message means, or who talks to whom. Its users see no types of Portals.
 *
 * An interface has three portal table entries, each with an event queue.
 *
 *   eager  messages, put into the receive ring of the channel that their match
 *          bits name
 *   bulk   puts and gets of regions, named by their match bits, without events
 *          at the target. The events in its queue belong to operations of this
 *          side, whose number is bounded: no flood of messages can displace an
 *          acknowledgement
 *   tag    messages that the interface matches to posted receives, or to the
 *          overflow buffers of their channel if there is no receive; see tag.h
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Additional buffers of a receive ring, for messages that the owner's window
 * does not count (portals.h); two of them are for the driver's fence and
 * answer. */
#define PSPTL_EXTRA_BUFFERS 6u
#define PSPTL_REASON_MAX 256u /* size of every `reason`, in bytes */
#define PSPTL_SECRET_SIZE 16u
#define PSPTL_FDS 3u /* most event queues of an interface */

typedef struct psptl_device psptl_device_t;
typedef struct psptl_channel psptl_channel_t;

typedef enum psptl_verdict {
    PSPTL_OK,
    PSPTL_REFUSED,   /* the target has no such region */
    PSPTL_UNCLAIMED, /* the target has no receive for the message */
    PSPTL_LOST,      /* the peer cannot be reached */
    PSPTL_BROKEN     /* the interface or the peer breaks the rules */
} psptl_verdict_t;

/* ---- settings ---- */

typedef enum psptl_choice {
    PSPTL_CHOICE_AUTO,
    PSPTL_CHOICE_SYSTEM,
    PSPTL_CHOICE_SOFTWARE
} psptl_choice_t;

typedef struct psptl_settings {
    psptl_choice_t provider;
    /* number of the interface, or an IPv4 address, which is the number of an
     * interface of the software NI; "": the default interface */
    const char *interface;
    size_t buffer_size;
    /* number of buffers of a channel's send and receive ring */
    uint32_t sendq, recvq;
    uint32_t overflows;    /* buffers for messages without a receive */
    uint32_t eq_size;
    uint32_t retries; /* most resends of a message that was dropped */
    size_t fragment;  /* most bytes of one put or get */
    uint32_t regions; /* most open regions of one channel */
    uint32_t foster;  /* extra polls while puts or gets are in flight */
    bool matching;    /* the interface matches messages to receives */
} psptl_settings_t;

/* ---- counters ---- */

#define PSPTL_COUNTER_LIST(X)                                                  \
    X(puts)             /* puts of messages, including resends */              \
    X(arrived)          /* messages delivered from the receive ring */         \
    X(dropped)          /* puts of messages that were refused or lost */       \
    X(disabled)         /* puts that met a disabled table entry */             \
    X(resends)          /* messages put again */                               \
    X(enables)          /* times that a table entry was enabled again */       \
    X(tag_enables)      /* times that the tag entry was enabled again */       \
    X(early)            /* messages that overtook an earlier one */            \
    X(duplicates)       /* messages that arrived more than once */             \
    X(ring_full)        /* sends that found no free buffer */                  \
    X(event_room) /* puts and gets for whose events the queue had no room */   \
    X(fragments) /* puts and gets of regions */                                \
    X(fragment_resends) /* puts and gets of regions that were repeated */      \
    X(regions) /* regions opened for peers */                                  \
    X(regions_refused) /* regions refused, because the channel had too many */ \
    X(foster_polls) /* polls because of PSP_PORTALS_FOSTER_PROGRESS */         \
    X(tag_puts) /* messages put that the target matches */                     \
    X(tag_direct) /* messages put without a copy, from the sender's memory */  \
    X(tag_posts) /* receives posted */                                         \
    X(tag_refused) /* receives that the interface did not take */              \
    X(tag_matched) /* messages delivered to a receive */                       \
    X(tag_claimed) /* messages that a receive found in an overflow buffer */   \
    X(tag_overflows) /* messages delivered without a receive */                \
    X(tag_aside) /* messages that waited in a buffer of their own */           \
    X(tag_held) /* receives withheld from the interface */                     \
    X(tag_kept) /* messages that the driver matched to a held receive */       \
    X(tag_copied) /* bytes copied between buffers and receives */              \
    X(tag_fences) /* answers to fences that ended the holding of receives */   \
    X(tag_rewinds) /* times that messages were taken out of receives again */  \
    X(pings) /* times that the peer was asked if it is alive */

typedef enum psptl_counter {
#define PSPTL_COUNTER_ENUM(name) PSPTL_COUNTER_##name,
    PSPTL_COUNTER_LIST(PSPTL_COUNTER_ENUM)
#undef PSPTL_COUNTER_ENUM
        PSPTL_N_COUNTERS
} psptl_counter_t;

/* ---- the owner of the channels ---- */

/* A message that the interface matches to receives. */
typedef struct psptl_tagged {
    uint64_t bits;
    uint32_t word; /* the sender's count of received messages */
    const uint8_t *bytes; /* the payload, if no receive matched the message */
    size_t len; /* length of the message; a receive may be shorter */
    uint32_t number; /* number of the message in the channel's sequence */
    bool missed; /* a put of psptl_tag_put found no receive, so none of
                    its bytes are here */
} psptl_tagged_t;

/* Upcalls to the owner, made from psptl_device_poll only, except `failed`. */
typedef struct psptl_owner {
    /* Delivers the next message of a channel; its bytes are valid during the
     * call. */
    void (*arrived)(void *owner, const uint8_t *bytes, size_t len);
    /* Delivers the next message of a channel if it is one that the interface
     * matches. `cookie` is that of the receive that got the message; if no
     * receive matched, `cookie` is NULL, and the bytes are valid during the
     * call. The verdict is not OK if the receive is lost. */
    void (*tagged)(void *owner, void *cookie, const psptl_tagged_t *message,
                   psptl_verdict_t verdict);
    /* Called when a buffer of the send ring is free again. */
    void (*room)(void *owner);
    /* Called once when the channel has failed, from any function of the
     * driver. */
    void (*failed)(void *owner, psptl_verdict_t verdict, const char *reason);
    /* Called when a put or get has ended; `cookie` is that of its order. */
    void (*done)(void *cookie, psptl_verdict_t verdict);
} psptl_owner_t;

/* The address of one end of a channel. */
typedef struct psptl_place {
    uint32_t nid, pid;
    /* portal table indices of this end, see the head of this file */
    uint32_t eager, bulk, tag;
    /* channel's number in match bits; 0: the interface matches nothing */
    uint32_t source;
    uint64_t bits; /* match bits of the receive ring */
    /* secret of the interface that its peers must know */
    uint8_t secret[PSPTL_SECRET_SIZE];
} psptl_place_t;

/* Memory that a peer may put to and get from. */
typedef struct psptl_region {
    uint64_t bits;
    size_t len;
    void *base;
} psptl_region_t;

/* The match bit that marks messages of psptl_tag_put, unless they are empty.
 * Receives ignore this bit. */
#define PSPTL_TAG_DIRECT 0x80000000ull

/* A receive that the interface is to match. */
typedef struct psptl_receive {
    void *cookie;
    /* match bits; the driver adds those that name the channel */
    uint64_t match, ignore;
    void *base;
    size_t len;
} psptl_receive_t;

typedef struct psptl_tag psptl_tag_t; /* a posted receive */

/* A put or get of a region, or a put of a message. */
typedef struct psptl_order {
    void *cookie;
    uint8_t *local;
    size_t len;
    uint64_t bits, offset; /* match bits of the region, offset in it */
    /* word and number of a message; psptl_tag_put sets the number */
    uint32_t word, number;
    bool get;
} psptl_order_t;

/* ---- devices ---- */

/* Returns whether the build and this machine have a library of Portals 4. */
bool psptl_has_library(void);

/* Opens an interface. If that fails, returns NULL, stores the reason, and
 * leaves nothing open. */
psptl_device_t *psptl_device_open(const psptl_settings_t *settings,
                                  const psptl_owner_t *owner, char *reason);
/* Closes the interface and frees all channels, except those to whose memory
 * the interface may still write. Returns the number of these. */
unsigned psptl_device_close(psptl_device_t *device);
/* The provider's name: "system" or "software". */
const char *psptl_device_name(const psptl_device_t *device);
/* Handles events of the interface, and sends what is due. Returns the number of
 * events handled. */
unsigned psptl_device_poll(psptl_device_t *device);
/* Stores the file descriptors of the event queues. Each becomes readable when
 * an event arrives after psptl_device_arm returned true. Returns their number;
 * 0 if the library has none. */
unsigned psptl_device_fds(psptl_device_t *device, int fds[PSPTL_FDS]);
/* Makes the next event signal the file descriptors. Returns false if there is
 * an event already. */
bool psptl_device_arm(psptl_device_t *device);
/* Returns the time at which psptl_device_poll has work to do even without an
 * event; INT64_MAX if never. */
int64_t psptl_device_deadline(const psptl_device_t *device);
const uint64_t *psptl_device_counters(const psptl_device_t *device);

/* The objects that a device holds at this moment. */
typedef struct psptl_holdings {
    uint32_t channels;
    uint32_t lingering; /* destroyed channels whose buffers the interface may
                           still write */
    uint32_t transfers; /* puts and gets in flight */
    /* unused records of puts, gets and receives, kept for reuse */
    uint32_t spare;
    /* regions revoked or closed while a put or get used them */
    uint32_t busy_regions;
} psptl_holdings_t;

psptl_holdings_t psptl_device_holdings(const psptl_device_t *device);

/* ---- channels ---- */

/* Creates a channel, whose receive ring is posted at once. Returns NULL with
 * the reason if memory or entries are short. */
psptl_channel_t *psptl_channel_create(psptl_device_t *device, void *owner,
                                      char *reason);
/* Stores the address of the channel's own end, for its peer. */
void psptl_channel_place(const psptl_channel_t *channel,
                         psptl_place_t *place_p);
/* Sets the peer of the channel. Messages that arrived earlier are delivered by
 * the next poll. */
void psptl_channel_connect(psptl_channel_t *channel, const psptl_place_t *peer);
/* Returns true if every message, put and get has been acknowledged or given
 * up. */
bool psptl_channel_idle(const psptl_channel_t *channel);
/* Gives up every message, put and get that is not in flight. */
void psptl_channel_abort(psptl_channel_t *channel);
/* Announces that the owner sends at most one more message, a goodbye: the
 * driver sends no fence after this. */
void psptl_channel_part(psptl_channel_t *channel);
/* Destroys the channel: its owner is not called any more. Its memory is freed
 * when the interface cannot write to it any more. */
void psptl_channel_destroy(psptl_channel_t *channel);
/* Asks the peer's interface whether it is alive. */
void psptl_channel_ping(psptl_channel_t *channel);
/* Counters of one channel; those of the interface as a whole are the same for
 * all of its channels. */
void psptl_channel_counters(const psptl_channel_t *channel,
                            uint64_t values[PSPTL_N_COUNTERS]);

/* ---- messages ---- */

/* Returns the buffer for the next message, or NULL if the send ring is full.
 * The buffer counts as free until psptl_send_end or psptl_tag_send sends it. */
uint8_t *psptl_send_begin(psptl_channel_t *channel);
void psptl_send_end(psptl_channel_t *channel, size_t len);

/* Returns NULL if the interface matches messages of this channel, else the
 * reason why it does not; valid once the peer is known. */
const char *psptl_tag_flaw(const psptl_channel_t *channel);
/* Sends the buffer of psptl_send_begin as a message that the peer's interface
 * matches, in one order with the other messages. */
void psptl_tag_send(psptl_channel_t *channel, size_t len, uint64_t bits,
                    uint32_t word);
/* Sends a long message from the caller's memory, without a copy; its bits
 * contain PSPTL_TAG_DIRECT. `done` reports UNCLAIMED if the peer had no receive
 * for the message. Returns REFUSED if the message cannot be put now, UNCLAIMED
 * if it cannot be sent in this way, such as one too long for one put. */
psptl_verdict_t psptl_tag_put(psptl_channel_t *channel, psptl_order_t *order);
/* Posts a receive. Returns NULL if the interface does not take the receive now;
 * else the upcall `tagged` reports its message, unless it is cancelled
 * before. */
psptl_tag_t *psptl_tag_post(psptl_channel_t *channel,
                            const psptl_receive_t *receive);
/* Cancels a posted receive. Returns false if the receive has matched. */
bool psptl_tag_cancel(psptl_tag_t *tag);

/* ---- regions ---- */

/* Opens memory to the peer of the channel, or to everybody if `channel` is
 * NULL. Returns NULL if the channel has too many regions, or if the interface
 * takes no more entries. */
psptl_region_t *psptl_region_open(psptl_device_t *device,
                                  psptl_channel_t *channel, void *base,
                                  size_t len);
/* Closes the memory to new puts and gets. Returns false while a put or get is
 * in progress, which may last until the peer is lost: call again after a poll,
 * for which psptl_device_deadline gives a time. */
bool psptl_region_revoke(psptl_device_t *device, psptl_region_t *region);
/* Revokes the region, waiting a little if necessary. The driver frees the
 * region. Returns false if a peer may still use the memory. */
bool psptl_region_close(psptl_device_t *device, psptl_region_t *region);
/* Puts to or gets from a region of the peer. Returns false if memory is
 * short. */
bool psptl_bulk_start(psptl_channel_t *channel, const psptl_order_t *order);
