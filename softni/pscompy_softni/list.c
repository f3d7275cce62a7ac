/* Finds the list entry that takes a message, and the unexpected message that
 * an entry takes, without comparing all of them.
 *
 * Entries with the same ignore bits form a class, which hashes its entries by
 * the bits that are not ignored; a message is compared with one bucket of each
 * class, and the earliest entry that fits takes it (tuple space search:
 * Srinivasan, Suri and Varghese, SIGCOMM 1999). Programs ignore few different
 * sets of bits; if there are more than PSNI_CLASSES, entries of further sets go
 * into the first class, whose entries are all compared. Unexpected messages are
 * in one hash, of the bits that no search has ignored yet. */
#include <stdlib.h>

#include "nic.h"

/* average number of elements per bucket at which a hash gets more buckets */
#define HASH_LOAD 4u
#define HASH_GROWTH 8u

/* ---- hashes ---- */

static void psni_hash_init(psni_hash_t *hash)
{
    psc_list_init(&hash->one);
    hash->buckets = &hash->one;
    hash->size = 1;
    hash->used = 0;
}

static void psni_hash_close(psni_hash_t *hash)
{
    if (hash->buckets != &hash->one)
        free(hash->buckets);
    psni_hash_init(hash);
}

static psc_list_t *psni_hash_bucket(const psni_hash_t *hash, uint64_t key)
{
    return &hash->buckets[(uint32_t)(key * 0x9e3779b97f4a7c15ull >> 32) &
                          (hash->size - 1)];
}

/* Enlarges a hash if it is full. Returns true if it has more buckets now, all
 * of which are empty: the caller adds the elements again. */
static bool psni_hash_grow(psni_hash_t *hash)
{
    uint32_t size = hash->size * HASH_GROWTH;
    psc_list_t *buckets;

    if (hash->used < hash->size * HASH_LOAD)
        return false;
    buckets = malloc(size * sizeof(*buckets));
    if (buckets == NULL)
        /* memory is short: the hash keeps its buckets and becomes slower */
        return false;
    for (uint32_t i = 0; i < size; i++)
        psc_list_init(&buckets[i]);
    if (hash->buckets != &hash->one)
        free(hash->buckets);
    hash->buckets = buckets;
    hash->size = size;
    return true;
}

/* ---- entries ---- */

/* Starts a class (entries that ignore the same bits) with no entries. The first
 * class of a list takes the entries that no other class takes. */
static psni_class_t *psni_class_init(psni_class_t *class,
                                     ptl_match_bits_t ignore)
{
    psni_hash_init(&class->hash);
    class->ignore = ignore;
    return class;
}

void psni_list_init(psni_list_t *list)
{
    psc_list_init(&list->entries);
    psni_class_init(&list->classes[0], ~(ptl_match_bits_t)0);
    list->n_classes = 1;
    list->places = 0;
}

void psni_list_close(psni_list_t *list)
{
    for (unsigned i = 0; i < list->n_classes; i++)
        psni_hash_close(&list->classes[i].hash);
}

static psni_class_t *psni_class_of(psni_list_t *list, ptl_match_bits_t ignore)
{
    psni_class_t *spare = NULL;

    for (unsigned i = 0; i < list->n_classes; i++) {
        if (list->classes[i].ignore == ignore)
            return &list->classes[i];
        if (i > 0 && list->classes[i].hash.used == 0)
            spare = &list->classes[i];
    }
    if (spare != NULL)
        spare->ignore = ignore;
    else if (list->n_classes < PSNI_CLASSES)
        spare = psni_class_init(&list->classes[list->n_classes++], ignore);
    return spare != NULL ? spare : &list->classes[0];
}

static void psni_class_push(psni_class_t *class, psni_entry_t *entry)
{
    psc_list_push(
        psni_hash_bucket(&class->hash, entry->me.match_bits & ~class->ignore),
        &entry->bucket);
}

void psni_list_add(psni_list_t *list, psni_entry_t *entry)
{
    psni_class_t *class = psni_class_of(list, entry->me.ignore_bits);

    entry->class = class;
    entry->place = list->places++;
    if (psni_hash_grow(&class->hash))
        psc_list_for_each(other, &list->entries, psni_entry_t, link)
            if (other->class == class)
                psni_class_push(class, other);
    psc_list_push(&list->entries, &entry->link);
    psni_class_push(class, entry);
    class->hash.used++;
}

void psni_list_remove(psni_entry_t *entry)
{
    psc_list_remove(&entry->link);
    psc_list_remove(&entry->bucket);
    entry->class->hash.used--;
}

static bool psni_me_fits(const ptl_me_t *me, ptl_process_t initiator,
                         ptl_match_bits_t match_bits)
{
    return ((me->match_bits ^ match_bits) & ~me->ignore_bits) == 0 &&
           (me->match_id.phys.nid == PTL_NID_ANY ||
            me->match_id.phys.nid == initiator.phys.nid) &&
           (me->match_id.phys.pid == PTL_PID_ANY ||
            me->match_id.phys.pid == initiator.phys.pid);
}

uint64_t psni_entry_offset(const psni_entry_t *entry,
                           const psni_arrival_t *arrival)
{
    if ((entry->me.options & PTL_ME_MANAGE_LOCAL) != 0)
        return entry->filled;
    return arrival->remote_offset;
}

uint64_t psni_entry_room(const psni_entry_t *entry, uint64_t offset)
{
    return offset > entry->region.length ? 0 : entry->region.length - offset;
}

static bool psni_entry_fits(const psni_entry_t *entry,
                            const psni_arrival_t *arrival)
{
    if (!psni_me_fits(&entry->me, arrival->initiator, arrival->match_bits))
        return false;
    return (entry->me.options & PTL_ME_NO_TRUNCATE) == 0 ||
           psni_entry_room(entry, psni_entry_offset(entry, arrival)) >=
               arrival->rlength;
}

/* Returns the first entry of the class that takes the message, if its place is
 * before that of `found`; else NULL. */
static psni_entry_t *psni_class_find(const psni_class_t *class,
                                     const psni_arrival_t *arrival,
                                     const psni_entry_t *found)
{
    const psc_list_t *bucket =
        psni_hash_bucket(&class->hash, arrival->match_bits & ~class->ignore);

    psc_list_for_each(entry, bucket, psni_entry_t, bucket) {
        if (found != NULL && entry->place > found->place)
            return NULL;
        if (psni_entry_fits(entry, arrival))
            return entry;
    }
    return NULL;
}

psni_entry_t *psni_list_find(const psni_list_t *list,
                             const psni_arrival_t *arrival)
{
    psni_entry_t *found = NULL;

    for (unsigned i = 0; i < list->n_classes; i++) {
        psni_entry_t *entry =
            list->classes[i].hash.used == 0
                ? NULL
                : psni_class_find(&list->classes[i], arrival, found);

        if (entry != NULL)
            found = entry;
    }
    return found;
}

/* ---- unexpected messages ---- */

void psni_headers_init(psni_headers_t *headers)
{
    psc_list_init(&headers->all);
    psni_hash_init(&headers->hash);
    headers->kept = ~(ptl_match_bits_t)0;
}

void psni_headers_close(psni_headers_t *headers)
{
    psni_hash_close(&headers->hash);
}

static void psni_headers_push(psni_headers_t *headers, psni_header_t *header)
{
    psc_list_push(psni_hash_bucket(&headers->hash,
                                   header->arrival.match_bits & headers->kept),
                  &header->bucket);
}

static void psni_headers_again(psni_headers_t *headers)
{
    psc_list_for_each(header, &headers->all, psni_header_t, link) {
        psc_list_remove(&header->bucket);
        psni_headers_push(headers, header);
    }
}

void psni_headers_add(psni_headers_t *headers, psni_header_t *header)
{
    if (psni_hash_grow(&headers->hash))
        psc_list_for_each(other, &headers->all, psni_header_t, link)
            psni_headers_push(headers, other);
    psc_list_push(&headers->all, &header->link);
    psni_headers_push(headers, header);
    headers->hash.used++;
}

void psni_headers_remove(psni_headers_t *headers, psni_header_t *header)
{
    psc_list_remove(&header->link);
    psc_list_remove(&header->bucket);
    headers->hash.used--;
}

/* Finds an unexpected message, one that arrived before an entry for it. Bits
 * that the entry `me` ignores are first removed from the keys of the hash. */
psni_header_t *psni_header_find(psni_pt_t *pt, const ptl_me_t *me)
{
    psni_headers_t *headers = &pt->unexpected;

    if ((headers->kept & me->ignore_bits) != 0) {
        headers->kept &= ~me->ignore_bits;
        psni_headers_again(headers);
    }
    psc_list_for_each(
        header,
        psni_hash_bucket(&headers->hash, me->match_bits & headers->kept),
        psni_header_t, bucket) {
        const psni_arrival_t *arrival = &header->arrival;
        unsigned needed =
            arrival->verb == PSNI_PUT ? PTL_ME_OP_PUT : PTL_ME_OP_GET;

        if (psni_me_fits(me, arrival->initiator, arrival->match_bits) &&
            (me->options & needed) != 0 &&
            (me->uid == PTL_UID_ANY || me->uid == arrival->uid))
            return header;
    }
    return NULL;
}
