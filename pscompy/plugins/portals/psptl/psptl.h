/* psptl: point-to-point channels over Portals 4, and nothing else. What a
 * message means, and who talks to whom, it does not know; what it is built on,
 * its users do not: types of Portals stand in driver.h alone, since they are
 * those of a library, and the driver exists once for each (system.c).
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

/* What the software interface does wrong on purpose; rates per million. */
typedef struct psptl_mischief {
    uint32_t fail_acks, reorder_events, disable_tables;
    bool unlink_used;
    uint32_t drop, duplicate, reorder, delay, delay_us;
    uint64_t seed;
    uint64_t max_message; /* 0: what it likes */
    uint64_t max_events;  /* of one queue; 0: what it likes */
} psptl_mischief_t;

typedef struct psptl_settings {
    const char *interface; /* number or address; "": the default one */
    size_t buffer_size;
    uint32_t sendq, recvq; /* buffers of a channel's rings */
    uint32_t overflows; /* buffers for messages without receive */
    uint32_t eq_size;
    uint32_t retries;  /* of a message that was dropped */
    size_t fragment;   /* most bytes of one put or get */
    uint32_t regions;  /* that one channel may have open */
    uint32_t foster;   /* further polls while bulk data is under way */
    bool matching;     /* in the interface */
    psptl_mischief_t mischief;
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

/* ---- one driver ---- */

typedef struct psptl_driver {
    const char *name; /* of the library */

    /* Whether the library is on this machine. */
    bool (*there)(char *reason, size_t room);
    /* NULL: reason says why, and nothing is left behind. */
    psptl_device_t *(*device_open)(const psptl_settings_t *settings,
                                   const psptl_owner_t *owner, char *reason,
                                   size_t room);
    /* Channels that are left are freed, but for those to whose memory the
     * interface may still write; returns how many these are. */
    unsigned (*device_close)(psptl_device_t *device);
    /* Handle what has happened, put again what is due; the number of events. */
    unsigned (*device_poll)(psptl_device_t *device);
    /* Descriptors that become readable when something happens, provided that
     * device_arm said so; returns how many, 0: there are none. */
    unsigned (*device_fds)(psptl_device_t *device, int fds[PSPTL_FDS]);
    /* False: something is there already. */
    bool (*device_arm)(psptl_device_t *device);
    /* When something is due again, INT64_MAX: never. */
    int64_t (*device_deadline)(const psptl_device_t *device);
    const uint64_t *(*device_counters)(const psptl_device_t *device);
    /* Of what happens to an interface as a whole, those of the interface. */
    void (*channel_counters)(const psptl_channel_t *channel,
                             uint64_t values[PSPTL_N_COUNTERS]);

    /* Its receive ring is posted. NULL: reason says why. */
    psptl_channel_t *(*channel_create)(psptl_device_t *device, void *owner,
                                       char *reason, size_t room);
    void (*channel_place)(const psptl_channel_t *channel,
                          psptl_place_t *place_p);
    /* From now on messages come and go; those that came before follow with
     * the next poll. */
    void (*channel_connect)(psptl_channel_t *channel,
                            const psptl_place_t *peer);
    /* All that was sent has been acknowledged, or never will be. */
    bool (*channel_idle)(const psptl_channel_t *channel);
    /* Give up what is not under way. */
    void (*channel_abort)(psptl_channel_t *channel);
    /* The owner will send one more message, a goodbye, and asks nothing. */
    void (*channel_part)(psptl_channel_t *channel);
    /* The owner hears no more of it; its memory goes when nobody writes
     * there any more. */
    void (*channel_destroy)(psptl_channel_t *channel);
    /* Ask the peer's interface whether it is there. */
    void (*channel_ping)(psptl_channel_t *channel);

    /* The buffer for the next message, of the size that was set; NULL: the
     * ring is full. It counts for nothing before send_end. */
    uint8_t *(*send_begin)(psptl_channel_t *channel);
    void (*send_end)(psptl_channel_t *channel, size_t len);

    /* Why nothing is matched for this channel, once its peer is known; NULL:
     * everything is. */
    const char *(*tag_flaw)(const psptl_channel_t *channel);
    /* The same as send_end for a message that is to be matched, in its order
     * among the others. */
    void (*tag_send)(psptl_channel_t *channel, size_t len, uint64_t bits,
                     uint32_t word);
    /* The same for one that is put from where it is, and longer; its bits have
     * PSPTL_TAG_DIRECT. `done` tells UNCLAIMED if no receive was there.
     * REFUSED: not now. UNCLAIMED: it is too long for one put. */
    psptl_verdict_t (*tag_put)(psptl_channel_t *channel, psptl_order_t *order);
    /* NULL: not now. Else the owner hears of it, or cancels it in time. */
    psptl_tag_t *(*tag_post)(psptl_channel_t *channel,
                             const psptl_receive_t *receive);
    /* False: it has matched. */
    bool (*tag_cancel)(psptl_tag_t *tag);

    /* channel: who may use it, NULL: everybody. NULL: the channel has too
     * many, or the interface takes no more. */
    psptl_region_t *(*region_open)(psptl_device_t *device,
                                   psptl_channel_t *channel, void *base,
                                   size_t len);
    /* Nobody finds it any more. False: somebody uses it this moment, and goes
     * on until the peer has ended or is lost; ask again after a poll, for which
     * device_deadline sees to it. */
    bool (*region_revoke)(psptl_device_t *device, psptl_region_t *region);
    /* The same, and waits a little; the region is the driver's afterwards.
     * False: somebody may still use the memory. */
    bool (*region_close)(psptl_device_t *device, psptl_region_t *region);
    /* False: no memory. */
    bool (*bulk_start)(psptl_channel_t *channel, const psptl_order_t *order);
} psptl_driver_t;

extern const psptl_driver_t psptl_software_driver;
extern const psptl_driver_t psptl_system_driver; /* its name is NULL where the
                                                    build found no library */

#endif
