/* The software NI: its table, its settings, its counters. What the settings
 * break on purpose is for tests; all zero means none of it. */
#ifndef PSNI_SOFTWARE_H
#define PSNI_SOFTWARE_H

#include <stdbool.h>

#include "provider.h"

extern const psptl_provider_t psni_provider;

/* Rates are per million. */
typedef struct psni_settings {
    /* IPv4 address to bind, as text; NULL is 127.0.0.1 (this machine only).
     * It becomes the nid. */
    const char *address;
    /* A key that all NIs of a job have in common, instead of cookies. */
    bool has_key;
    uint8_t key[PSPTL_COOKIE_BYTES];
    unsigned spin_us; /* how long a blocking call polls before it sleeps */
    unsigned dead_after; /* unanswered resends until a peer is gone; 0: 100 */

    /* Caps on the limits that PtlNIInit grants; 0: none. */
    ptl_size_t max_msg_size;
    ptl_size_t max_eq_size;
    int max_unexpected_headers;

    /* Above the delivery guarantee. */
    unsigned fail_acks;      /* puts at whose end the ACK says DROPPED, and
                                that were dropped */
    unsigned reorder_events; /* puts whose event is held until the next one;
                                only of entries that are taken once */
    unsigned disable_tables; /* puts that disable a table with flow control */
    bool unlink_used; /* PtlMEUnlink answers PTL_OK of an entry that a message
                         has used up, whose events are still in the queue */

    /* Below it: on the wire, mended by the NI. */
    unsigned drop, duplicate, reorder;
    unsigned delay, delay_us;
    uint64_t seed; /* of the dice */
} psni_settings_t;

typedef struct psni_counters {
    uint64_t frames_sent, frames_received;
    uint64_t frames_resent;  /* because no acknowledgement came */
    uint64_t frames_ignored; /* malformed, foreign, or received before */
    uint64_t acks_failed, events_reordered, tables_disabled; /* on purpose */
    uint64_t used_unlinked; /* entries of which PtlMEUnlink said so */
    uint64_t dropped, duplicated, reordered, delayed;
    uint64_t bytes_copied; /* into list entries */
    uint64_t peers_lost;
} psni_counters_t;

/* Holds for NIs that are initialised from now on. PTL_ARG_INVALID: an address
 * that is none of this machine's IPv4 addresses, or a rate above a million. */
int psni_configure(const psni_settings_t *settings);

int psni_counters(ptl_handle_ni_t ni_handle, psni_counters_t *counters);

#endif
