/* Portal table entries, list entries, and the properties of messages that
 * matching uses. */
#pragma once

#include "objects.h"

/* ---- list.c ---- */

/* maximum number of classes of one list: groups of entries that ignore the same
 * bits */
#define PSNI_CLASSES 8u

typedef struct psni_hash {
    /* array of `size` buckets (`size` is a power of two); at first the array is
     * the member `one` */
    psc_list_t *buckets;
    psc_list_t one;
    uint32_t size, used;
} psni_hash_t;

typedef struct psni_class {
    ptl_match_bits_t ignore;
    /* hash of the psni_entry_t of the class, by the bits that are not
     * ignored */
    psni_hash_t hash;
} psni_class_t;

typedef struct psni_list {
    /* psni_entry_t, in the order in which they were added */
    psc_list_t entries;
    uint64_t places;
    unsigned n_classes;
    psni_class_t classes[PSNI_CLASSES];
} psni_list_t;

typedef struct psni_headers {
    psc_list_t all; /* psni_header_t, in the order of arrival */
    ptl_match_bits_t kept;
    psni_hash_t hash; /* hash of the headers in `all`, by the bits in `kept` */
} psni_headers_t;

/* ---- table.c, api_table.c, entry.c, match.c ---- */

typedef struct psni_pt {
    bool used, enabled;
    unsigned options;
    uint32_t index;
    psni_eq_t *eq;
    /* priority list and overflow list; the index is a ptl_list_t */
    psni_list_t lists[2];
    psni_headers_t unexpected;
    int n_entries[2];
} psni_pt_t;

struct psni_entry {
    psni_object_t object;
    /* `link`: link in the list `entries`; `bucket`: link in a bucket of the
     * class's hash */
    psc_link_t link, bucket;
    psni_class_t *class;
    /* number of the entry in the order in which entries were added to the
     * list */
    uint64_t place;
    psni_pt_t *pt;
    ptl_me_t me;
    ptl_list_t list;
    void *user_ptr;
    psni_ct_t *ct;
    psni_region_t region;
    /* bytes of the entry's memory that messages have filled
     * (PTL_ME_MANAGE_LOCAL only) */
    uint64_t filled;
    uint32_t under_way, headers;
    bool linked, unlink_reported;
};

/* The search or the appended list entry that has taken an unexpected message
 * (one that arrived before the search or the entry). */
typedef struct psni_claim {
    bool made, search;
    unsigned options; /* options of the appended list entry, or of the search */
    void *user_ptr;
    psni_ct_t *ct;
} psni_claim_t;

/* A message that arrives, with the fields that its events at the target
 * report. */
typedef struct psni_arrival {
    psni_verb_t verb;
    ptl_process_t initiator;
    ptl_uid_t uid;
    ptl_match_bits_t match_bits;
    ptl_hdr_data_t hdr_data;
    uint64_t rlength, mlength;
    /* `remote_offset`: offset that the initiator requested; `offset`: offset in
     * the entry at which the bytes are */
    uint64_t remote_offset, offset;
    ptl_ni_fail_t fail;
} psni_arrival_t;

typedef struct psni_header {
    psc_link_t link, bucket;
    /* the entry of the overflow list that took the message */
    psni_entry_t *entry;
    psni_arrival_t arrival;
    psni_claim_t claim;
    bool complete;
} psni_header_t;

void psni_list_init(psni_list_t *list);
void psni_list_close(psni_list_t *list);
void psni_list_add(psni_list_t *list, psni_entry_t *entry);
void psni_list_remove(psni_entry_t *entry);
/* Returns the first entry that takes the message; NULL if none does. */
psni_entry_t *psni_list_find(const psni_list_t *list,
                             const psni_arrival_t *arrival);
void psni_headers_init(psni_headers_t *headers);
void psni_headers_close(psni_headers_t *headers);
void psni_headers_add(psni_headers_t *headers, psni_header_t *header);
void psni_headers_remove(psni_headers_t *headers, psni_header_t *header);
/* Returns the first unexpected message (one that arrived before its entry) that
 * the entry `me` would have taken; NULL if there is none. */
psni_header_t *psni_header_find(psni_pt_t *pt, const ptl_me_t *me);

psni_pt_t *psni_pt_find(psni_ni_t *ni, ptl_pt_index_t index);
/* Disables a portal table entry by flow control: it refuses messages from now
 * on. Posts an event about this if `report` is set. */
void psni_pt_disable(psni_ni_t *ni, psni_pt_t *pt, bool report);
void psni_pt_close(psni_ni_t *ni, psni_pt_t *pt);

/* Removes the entry from its list. psni_entry_release frees the entry later,
 * when no message is in flight into it and its last event was posted. */
void psni_entry_unlink(psni_entry_t *entry);
void psni_entry_free(psni_entry_t *entry);
void psni_entry_report(const psni_entry_t *entry, ptl_event_kind_t type);
void psni_entry_release(psni_entry_t *entry);
void psni_entry_report_unlink(psni_pt_t *pt, const psni_claim_t *claim);

/* Finds an entry that takes the message. Reserves the entry, memory for the
 * header of an unexpected message, and the bytes of the entry at
 * arrival->offset. On failure *entry_p is NULL and arrival->fail is the
 * reason. */
void psni_match(psni_ni_t *ni, uint32_t pt_index, psni_arrival_t *arrival,
                psni_entry_t **entry_p, psni_header_t **header_p);
/* Ends a message that has arrived in an entry: posts its event, counts it in
 * the counter of the entry, and releases the entry. */
void psni_match_end(psni_entry_t *entry, psni_header_t *header,
                    const psni_arrival_t *arrival);
void psni_match_post_late(psni_ni_t *ni);
/* psni_entry_offset returns the offset of a message in the entry,
 * psni_entry_room the number of bytes of the entry from an offset on. */
uint64_t psni_entry_offset(const psni_entry_t *entry,
                           const psni_arrival_t *arrival);
uint64_t psni_entry_room(const psni_entry_t *entry, uint64_t offset);
void psni_header_claim(psni_header_t *header, const psni_claim_t *claim);
void psni_header_drop(psni_header_t *header);
ptl_event_t psni_arrival_event(const psni_arrival_t *arrival,
                               ptl_event_kind_t type, uint32_t pt_index);
