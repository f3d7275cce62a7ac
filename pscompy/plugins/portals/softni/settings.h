/* Settings and counters of an NI. The settings are for tests: an NI of a
 * program has none of them set. */
#pragma once

#include <stdbool.h>

#include "api.h"

/* Settings of an NI. Rates of faults are per million. */
typedef struct psni_settings {
    /* Key shared by all NIs of a job; replaces the cookies if `has_key`. */
    bool has_key;
    uint8_t key[SOFTNI_COOKIE_BYTES];
    /* microseconds that a blocking call polls before it sleeps */
    unsigned spin_us;
    unsigned dead_after; /* unanswered resends until a peer is lost; 0: 100 */

    /* Upper bounds of limits that PtlNIInit and PtlEQAlloc grant; 0 if
     * unbounded. */
    uint64_t max_message;
    uint64_t max_events;
    unsigned max_headers;

    /* Faults that the user of the NI sees. */
    /* puts that are dropped and whose ACK reports the failure */
    unsigned fail_acks;
    /* puts whose event is held until the next one, only for entries with
     * PTL_ME_USE_ONCE */
    unsigned reorder_events;
    unsigned disable_tables; /* puts that disable a table with flow control */
    bool unlink_used; /* PtlMEUnlink returns PTL_OK for an entry that a message
                         has used up, although its events are still queued */

    /* Faults of the wire, which the NI repairs. */
    unsigned drop, duplicate, reorder;
    unsigned delay, delay_us;
    uint64_t seed; /* seed of the random numbers that decide on faults */
} psni_settings_t;

typedef struct psni_counters {
    uint64_t frames_sent, frames_received;
    uint64_t frames_resent; /* resent because no acknowledgement arrived */
    uint64_t frames_ignored; /* ignored as malformed, foreign, or duplicate */
    /* how often faults were applied */
    uint64_t acks_failed, events_reordered, tables_disabled;
    /* calls of PtlMEUnlink whose result `unlink_used` has changed */
    uint64_t used_unlinked;
    uint64_t dropped, duplicated, reordered, delayed;
    uint64_t bytes_copied; /* bytes copied into list entries */
    uint64_t peers_lost;
} psni_counters_t;

/* Replaces the settings of all NIs that are opened from now on. Returns
 * PTL_ARG_INVALID if a rate is above a million. */
int psni_configure(const psni_settings_t *settings);

int psni_counters(ptl_handle_ni_t ni_handle, psni_counters_t *counters);
