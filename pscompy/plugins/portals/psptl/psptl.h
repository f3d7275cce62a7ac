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
 *          overflow buffers of their channel if there is no receive; see
 * match.h
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Additional buffers of a receive ring, for messages that the limit RECVQ_SIZE
 * of messages in flight does not count (portals.h). Two of them are for the
 * driver's own messages, a fence and its answer (match.h). */
#define PSPTL_EXTRA_BUFFERS 6u
/* size in bytes of every buffer `reason`, for error messages */
#define PSPTL_REASON_MAX 256u
#define PSPTL_SECRET_SIZE 16u
/* maximum number of event queues of an interface: eager, bulk and tag */
#define PSPTL_FDS 3u

typedef struct psptl_device psptl_device_t;
typedef struct psptl_channel psptl_channel_t;

typedef enum psptl_verdict {
    PSPTL_OK,
    PSPTL_REFUSED, /* the target has no region that the put or get names */
    PSPTL_UNCLAIMED, /* the target had no receive posted for the message */
    PSPTL_LOST,      /* the peer cannot be reached */
    /* an error of the interface or of the peer, or memory is short */
    PSPTL_BROKEN
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
    /* `sendq`: number of buffers of a channel's send ring; `recvq`: number of
     * buffers of its receive ring, without PSPTL_EXTRA_BUFFERS */
    uint32_t sendq, recvq;
    /* number of a channel's overflow buffers, for messages that arrive before
     * their receive is posted */
    uint32_t overflows;
    uint32_t eq_size;
    /* how often a message that was dropped is sent again, at most */
    uint32_t retries;
    /* maximum number of bytes of one PtlPut or PtlGet; longer transfers take
     * several */
    size_t fragment;
    /* maximum number of memory regions that one channel may have open */
    uint32_t regions;
    /* extra polls in each psptl_device_poll while puts or gets are in flight */
    uint32_t foster;
    /* the interface matches messages to receives; else pscompy does */
    bool matching;
} psptl_settings_t;

/* ---- counters ---- */

#define PSPTL_COUNTER_LIST(X)                                                  \
    X(puts) /* puts of messages, including those put again */                  \
    X(arrived) /* messages delivered from the receive ring */                  \
    X(dropped) /* puts of messages that were refused or lost */                \
    X(disabled) /* puts that met a disabled portal table entry */              \
    X(resends) /* messages put again, because they did not arrive */           \
    X(enables) /* times that a portal table entry was enabled again */         \
    X(tag_enables) /* times that the table entry `tag` was enabled again */    \
    X(early) /* messages that overtook an earlier one */                       \
    X(duplicates) /* messages that arrived more than once */                   \
    X(ring_full) /* sends that found the send ring full */                     \
    X(event_room) /* puts and gets that waited for room in the event queue */  \
    X(fragments) /* puts and gets of regions */                                \
    X(fragment_resends) /* puts and gets of regions tried again */             \
    X(regions) /* memory regions opened for peers */                           \
    X(regions_refused) /* regions refused, because the channel had too many */ \
    X(foster_polls) /* polls because of PSP_PORTALS_FOSTER_PROGRESS */         \
    X(tag_puts) /* messages put that the target's interface matches */         \
    X(tag_direct) /* messages put without a copy, from the sender's memory */  \
    X(tag_posts) /* receives posted */                                         \
    X(tag_refused) /* receives that the interface did not take */              \
    X(tag_matched) /* messages delivered to a receive */                       \
    X(tag_claimed) /* messages that a receive found in an overflow buffer */   \
    X(tag_overflows) /* messages delivered without a receive */                \
    X(tag_aside) /* messages copied to a new buffer until their turn */        \
    X(tag_held) /* receives withheld from the interface (match.h) */           \
    X(tag_kept) /* messages matched by the driver to a held receive */         \
    X(tag_copied) /* bytes copied between buffers and receives */              \
    X(tag_fences) /* fence answers that ended a hold (match.h) */              \
    X(tag_rewinds) /* times that matches were undone (match.h) */              \
    X(pings) /* times that the peer was asked if it is alive */

typedef enum psptl_counter {
#define PSPTL_COUNTER_ENUM(name) PSPTL_COUNTER_##name,
    PSPTL_COUNTER_LIST(PSPTL_COUNTER_ENUM)
#undef PSPTL_COUNTER_ENUM
        PSPTL_N_COUNTERS
} psptl_counter_t;

/* ---- the owner of the channels ---- */

/* A message that the interface matches to receives, as the upcall `tagged`
 * reports it. */
typedef struct psptl_tagged {
    uint64_t bits;
    uint32_t word; /* number of messages that the sender has received */
    const uint8_t *bytes; /* the payload, if no receive matched the message */
    size_t len; /* length of the message; the receive's memory may be shorter */
    /* number of the message in the sequence of the channel's messages */
    uint32_t number;
    /* the message was sent by psptl_tag_put and found no receive, so its bytes
     * were not kept */
    bool missed;
} psptl_tagged_t;

/* Upcalls to the driver's user. All are made from psptl_device_poll only,
 * except `failed`. */
typedef struct psptl_owner {
    /* Delivers the next message of a channel; its bytes are valid during the
     * call. */
    void (*arrived)(void *owner, const uint8_t *bytes, size_t len);
    /* Delivers the next message of a channel if it is one that the interface
     * matches. `cookie` is that of the receive that got the message; if no
     * receive matched, `cookie` is NULL, and the bytes are valid during the
     * call. The verdict is PSPTL_LOST if the driver gives up the receive
     * without a message. */
    void (*tagged)(void *owner, void *cookie, const psptl_tagged_t *message,
                   psptl_verdict_t verdict);
    /* Called when a buffer of the channel's send ring is free again. */
    void (*room)(void *owner);
    /* Called once when the channel has failed, from any function of the
     * driver. */
    void (*failed)(void *owner, psptl_verdict_t verdict, const char *reason);
    /* Called when a put or get has ended; `cookie` is that of its
     * psptl_order_t. */
    void (*done)(void *owner, void *cookie, psptl_verdict_t verdict);
} psptl_owner_t;

/* The address of one end of a channel. */
typedef struct psptl_address {
    uint32_t nid, pid;
    /* indices of the portal table entries `eager`, `bulk` and `tag` of this end
     * (see the head of this file) */
    uint32_t eager, bulk, tag;
    /* number of the channel, in the match bits of messages to it; 0: the
     * interface does not match this channel's messages */
    uint32_t source;
    uint64_t bits; /* match bits of the channel's receive ring */
    /* secret of the interface that its peers must know */
    uint8_t secret[PSPTL_SECRET_SIZE];
} psptl_address_t;

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
    /* `match`: bits that a message must have; `ignore`: bits that are not
     * compared. The driver adds the bits that name the channel. */
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
    /* `bits`: match bits of the peer's region or of the message; `offset`:
     * offset in the region */
    uint64_t bits, offset;
    /* These are used for a message only. `word`: number of messages that the
     * sender has received; `number`: the message's own number, which
     * psptl_tag_put sets */
    uint32_t word, number;
    bool get;
} psptl_order_t;

/* ---- devices ---- */

/* Returns whether the build and this machine have a library of Portals 4. */
bool psptl_has_library(void);
/* Sets the path of the software NI. Called before a device is opened. */
void psptl_software_at(const char *path);

/* Opens an interface. If that fails, returns NULL, stores the reason, and
 * leaves nothing open. */
psptl_device_t *psptl_device_open(const psptl_settings_t *settings,
                                  const psptl_owner_t *owner, char *reason);
/* Closes the interface and frees all channels, except those to whose memory
 * the interface may still write. Returns the number of these. */
unsigned psptl_device_close(psptl_device_t *device);
/* The provider's name: "system" or "software". */
const char *psptl_device_name(const psptl_device_t *device);
/* Handles events of the interface, and sends the messages and fragments that
 * are due. Returns the number of events handled. */
unsigned psptl_device_poll(psptl_device_t *device);
/* Stores the file descriptors of the event queues. Each becomes readable when
 * an event arrives after psptl_device_arm returned true. Returns their number;
 * 0 if the library has none. */
unsigned psptl_device_fds(psptl_device_t *device, int fds[PSPTL_FDS]);
/* Makes the next event signal the file descriptors of psptl_device_fds. Returns
 * false if there is an event already. */
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
    uint32_t transfers; /* puts and gets that have not ended */
    /* unused records of puts, gets and receives, kept for reuse */
    uint32_t spare;
    /* regions that were revoked or closed while a put or get of a peer used
     * them */
    uint32_t busy_regions;
} psptl_holdings_t;

psptl_holdings_t psptl_device_holdings(const psptl_device_t *device);

/* ---- channels ---- */

/* Creates a channel, whose receive ring is posted to the interface at once.
 * Returns NULL and stores the reason if memory or the interface's list entries
 * are short. */
psptl_channel_t *psptl_channel_create(psptl_device_t *device, void *owner,
                                      char *reason);
/* Stores the address of the channel's own end, for its peer. */
void psptl_channel_address(const psptl_channel_t *channel,
                           psptl_address_t *address_p);
/* Sets the peer of the channel. Messages that arrived earlier are delivered by
 * the next poll. If `patience_ns` is not 0, the owner can do without the
 * channel. Then the software NI waits only so many nanoseconds for a silent
 * peer, and the channel fails as soon as the interface reports the peer as
 * unreachable. */
void psptl_channel_connect(psptl_channel_t *channel,
                           const psptl_address_t *peer, uint64_t patience_ns);
/* Changes the patience_ns of a connected channel (psptl_channel_connect). */
void psptl_channel_patience(psptl_channel_t *channel, uint64_t patience_ns);
/* Returns true if every message, put and get has been acknowledged or given
 * up. */
bool psptl_channel_idle(const psptl_channel_t *channel);
/* Gives up every message, put and get that is not in flight. */
void psptl_channel_abort(psptl_channel_t *channel);
/* Announces that the owner sends at most one more message, a goodbye: the
 * driver sends no fence (match.h) after this. */
void psptl_channel_part(psptl_channel_t *channel);
/* Destroys the channel: the driver makes no more upcalls to its owner. The
 * memory of the channel is freed when the interface cannot write to it any
 * more. */
void psptl_channel_destroy(psptl_channel_t *channel);
/* Asks the peer's interface whether it is alive. */
void psptl_channel_ping(psptl_channel_t *channel);
/* Stores the counters of one channel; counters that exist only for the
 * interface as a whole have the same values for all of its channels. */
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
 * matches to a receive. It is delivered in one order with the other messages of
 * the channel. */
void psptl_tag_send(psptl_channel_t *channel, size_t len, uint64_t bits,
                    uint32_t word);
/* Sends a long message from the caller's memory, without a copy; its bits
 * contain PSPTL_TAG_DIRECT. `done` reports UNCLAIMED if the peer had no receive
 * for the message. Returns REFUSED if the message cannot be put now, and
 * UNCLAIMED if it can never be sent in this way, for example because it is too
 * long for one put. */
psptl_verdict_t psptl_tag_put(psptl_channel_t *channel, psptl_order_t *order);
/* Posts a receive. Returns NULL if the interface does not take the receive now;
 * else the upcall `tagged` reports the message that matches it, unless the
 * receive is cancelled before. */
psptl_tag_t *psptl_tag_post(psptl_channel_t *channel,
                            const psptl_receive_t *receive);
/* Cancels a posted receive. Returns false if a message has matched the receive,
 * or if memory is short. */
bool psptl_tag_cancel(psptl_tag_t *tag);

/* ---- regions ---- */

/* Opens memory for puts and gets of the peer of the channel, or of everybody if
 * `channel` is NULL. Returns NULL if the channel has too many regions, or if
 * the interface takes no more list entries. */
psptl_region_t *psptl_region_open(psptl_device_t *device,
                                  psptl_channel_t *channel, void *base,
                                  size_t len);
/* Closes the region to new puts and gets. Returns false while a put or get of a
 * peer is in progress, which may last until the peer is lost: the caller calls
 * again after a poll, for which psptl_device_deadline gives a time. */
bool psptl_region_revoke(psptl_device_t *device, psptl_region_t *region);
/* Revokes the region (psptl_region_revoke), waiting a little if necessary, and
 * frees the psptl_region_t when possible. Returns false if a peer may still use
 * the memory. */
bool psptl_region_close(psptl_device_t *device, psptl_region_t *region);
/* Puts to or gets from a region of the peer. Returns false if memory is
 * short. */
bool psptl_bulk_start(psptl_channel_t *channel, const psptl_order_t *order);
