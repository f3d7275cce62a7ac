/* Exposed receives: the peer sees them, and may take one to copy a message into
 * it directly. The table of receives belongs to the ring that the owner of the
 * receives writes. The peer reports by a record in its own ring that it has
 * taken one. copy.c copies into receives that were taken.
 *
 * The word of an entry has a generation, which no other entry of the table
 * ever had, and a state. Only these changes are made:
 *
 *   FREE       -> ADVERTISED  owner, after it has written the fields
 *   ADVERTISED -> FREE        owner, by compare-and-swap: withdraws the receive
 *   ADVERTISED -> TAKEN       peer, by compare-and-swap; then it sends a record
 *   TAKEN      -> ENDED       peer: it will not look at the entry any more
 *   ENDED      -> FREE        owner
 *
 * A peer reads the word and then the fields. If its compare-and-swap succeeds,
 * the fields are those of this generation, because the owner writes fields only
 * after the word has changed.
 *
 * Memory orders: an entry's fields are relaxed and released by the word; `seen`
 * and `mask` are released by `last`, and `seen` is acquired before the claim;
 * claim and conceal are acquire-release. */
#include "memory.h"

#include <stdlib.h>
#include <string.h>

typedef enum shm_entry_state {
    SHM_ENTRY_FREE,
    SHM_ENTRY_ADVERTISED,
    SHM_ENTRY_TAKEN,
    SHM_ENTRY_ENDED
} shm_entry_state_t;

/* The copy of a message into a receive that was taken, as one of its sides sees
 * it: an advertised receive of ours, or a receive of the peer that was claimed
 * for a message of ours. */
typedef struct shm_placement {
    shm_copy_t copy;
    uint64_t generation;
    psc_exposed_t *recv; /* receive that this side advertised, or NULL */
    psc_comp_t landed; /* completion of the copy into `recv` */
} shm_placement_t;

struct shm_adverts {
    uint64_t generation;
    uint32_t used; /* bit set: entries of our table that are not free */
    /* bit set: entries of our table whose receives are filled, but at which the
     * peer may still look */
    uint32_t landed;
    shm_placement_t recvs[SHM_ENTRIES]; /* by entry of our table */
    shm_placement_t sends[SHM_ENTRIES]; /* by entry of the peer's table */
};

/* Body of a record of kind TAKEN: its sender has taken a receive that the other
 * side advertises. */
typedef struct shm_taken {
    uint32_t entry, reserved;
    uint64_t generation, bits;
    /* address and length of the message, in the process that took the
     * receive */
    uint64_t from, len;
} shm_taken_t;

_Static_assert(sizeof(shm_taken_t) + SHM_WORD_SIZE <= SHM_LINE, "one line");

static uint64_t shm_entry_word(uint64_t generation, shm_entry_state_t state)
{
    return generation << 8 | state;
}

static bool shm_entry_change(shm_entry_t *entry, uint64_t generation,
                             shm_entry_state_t from, shm_entry_state_t to)
{
    uint64_t word = shm_entry_word(generation, from);

    return atomic_compare_exchange_strong_explicit(
        &entry->word, &word, shm_entry_word(generation, to),
        memory_order_acq_rel, memory_order_acquire);
}

static shm_table_t *shm_table_own(const shm_ep_t *ep)
{
    return ep->tx.ring.table;
}

static shm_table_t *shm_table_peer(const shm_ep_t *ep)
{
    return ep->rx.ring.table;
}

static shm_adverts_t *shm_adverts_get(shm_ep_t *ep)
{
    if (ep->adverts != NULL)
        return ep->adverts;
    ep->adverts = calloc(1, sizeof *ep->adverts);
    for (uint32_t i = 0; ep->adverts != NULL && i < SHM_ENTRIES; i++)
        psc_list_init(&ep->adverts->sends[i].copy.listed);
    return ep->adverts;
}

static bool shm_adverts_usable(const shm_ep_t *ep)
{
    return ep->state == SHM_EP_UP && ep->cma && !ep->self;
}

/* ---- the owner's table ---- */

/* Frees the entries whose receives the peer has taken, and at which it looks no
 * more (state ENDED). */
static void shm_adverts_reap(shm_ep_t *ep, shm_adverts_t *adverts)
{
    for (uint32_t rest = adverts->landed; rest != 0; rest &= rest - 1) {
        uint32_t i = (uint32_t)__builtin_ctz(rest);

        if (!shm_entry_change(&shm_table_own(ep)->entries[i],
                              adverts->recvs[i].generation, SHM_ENTRY_ENDED,
                              SHM_ENTRY_FREE))
            continue;
        adverts->landed &= ~(1u << i);
        adverts->used &= ~(1u << i);
    }
}

static void shm_entry_write(shm_entry_t *entry, const psc_exposed_t *recv,
                            uint64_t generation)
{
    atomic_store_explicit(&entry->match, recv->match, memory_order_relaxed);
    atomic_store_explicit(&entry->ignore, recv->ignore, memory_order_relaxed);
    atomic_store_explicit(&entry->address, (uintptr_t)recv->buffer.base,
                          memory_order_relaxed);
    atomic_store_explicit(&entry->len, recv->buffer.len, memory_order_relaxed);
    shm_cursor_begin(&entry->cursor, shm_cursor_turn(generation), 0);
    atomic_store_explicit(&entry->word,
                          shm_entry_word(generation, SHM_ENTRY_ADVERTISED),
                          memory_order_release);
}

static void shm_placement_judge(shm_ep_t *ep, psc_status_t status)
{
    if (status == PSC_ERR_PROTOCOL)
        shm_ep_fail(ep, status,
                    "shm: the peer reports more bytes than the message has");
}

static void shm_recv_release(shm_ep_t *ep, shm_copy_t *copy,
                             psc_status_t status)
{
    shm_placement_t *it = psc_container_of(copy, shm_placement_t, copy);

    ep->adverts->landed |= 1u << (it - ep->adverts->recvs);
    shm_placement_judge(ep, status);
}

static void shm_recv_landed(psc_comp_t *comp, psc_status_t status)
{
    shm_placement_t *it = psc_container_of(comp, shm_placement_t, landed);
    psc_exposed_t *recv = it->recv;

    it->recv = NULL;
    recv->landed(recv, status);
}

static void shm_recv_set(shm_placement_t *it, psc_exposed_t *recv,
                         uint64_t generation, shm_cursor_t *cursor)
{
    *it = (shm_placement_t){.copy = {.side = SHM_FRONT,
                                     .here = recv->buffer.base,
                                     .len = recv->buffer.len,
                                     .cursor = cursor,
                                     .turn = shm_cursor_turn(generation),
                                     .comp = &it->landed,
                                     .release = shm_recv_release},
                            .generation = generation,
                            .recv = recv,
                            .landed = {shm_recv_landed}};
    psc_list_init(&it->copy.listed);
}

psc_status_t shm_expose(psc_ep_t *super, psc_exposed_t *recv, uint64_t seen)
{
    shm_ep_t *ep = shm_ep(super);
    shm_adverts_t *adverts =
        shm_adverts_usable(ep) ? shm_adverts_get(ep) : NULL;
    shm_table_t *table = shm_table_own(ep);
    uint32_t i;

    if (adverts == NULL || recv->buffer.len > SHM_COPY_MAX)
        return PSC_ERR_UNSUPPORTED;
    shm_adverts_reap(ep, adverts);
    if (adverts->used == UINT32_MAX)
        return PSC_ERR_NO_RESOURCE;
    i = (uint32_t)__builtin_ctz(~adverts->used);
    recv->entry = i;
    adverts->used |= 1u << i;
    shm_recv_set(&adverts->recvs[i], recv, ++adverts->generation,
                 &table->entries[i].cursor);
    shm_entry_write(&table->entries[i], recv, adverts->generation);
    atomic_store_explicit(&table->mask, adverts->used & ~adverts->landed,
                          memory_order_relaxed);
    atomic_store_explicit(&table->seen, seen, memory_order_release);
    atomic_store_explicit(&table->last, adverts->generation,
                          memory_order_release);
    return PSC_OK;
}

psc_status_t shm_conceal(psc_ep_t *super, psc_exposed_t *recv, uint64_t seen)
{
    shm_ep_t *ep = shm_ep(super);
    shm_adverts_t *adverts = ep->adverts;
    shm_table_t *table = shm_table_own(ep);
    uint32_t i = recv->entry;

    if (!shm_entry_change(&table->entries[i], adverts->recvs[i].generation,
                          SHM_ENTRY_ADVERTISED, SHM_ENTRY_FREE))
        return PSC_ERR_INVALID;
    adverts->recvs[i].recv = NULL;
    adverts->used &= ~(1u << i);
    atomic_store_explicit(&table->mask, adverts->used & ~adverts->landed,
                          memory_order_relaxed);
    atomic_store_explicit(&table->seen, seen, memory_order_release);
    return PSC_OK;
}

/* ---- the claimer ---- */

uint32_t shm_exposed(psc_ep_t *super, psc_advertised_t *advertised,
                     uint64_t *seen_p)
{
    const shm_ep_t *ep = shm_ep(super);
    shm_table_t *table = shm_table_peer(ep);
    uint64_t last;
    uint32_t n = 0, mask;

    if (!shm_adverts_usable(ep))
        return 0;
    /* load `last` first, so that all entries up to this generation are
     * visible */
    last = atomic_load_explicit(&table->last, memory_order_acquire);
    mask = atomic_load_explicit(&table->mask, memory_order_relaxed);
    for (; mask != 0; mask &= mask - 1) {
        uint32_t i = (uint32_t)__builtin_ctz(mask);
        shm_entry_t *entry = &table->entries[i];
        uint64_t word =
            atomic_load_explicit(&entry->word, memory_order_acquire);

        if ((word & 0xff) != SHM_ENTRY_ADVERTISED || word >> 8 > last)
            continue;
        advertised[n++] = (psc_advertised_t){
            .entry = i,
            .generation = word >> 8,
            .match = atomic_load_explicit(&entry->match, memory_order_relaxed),
            .ignore =
                atomic_load_explicit(&entry->ignore, memory_order_relaxed),
        };
    }
    *seen_p = atomic_load_explicit(&table->seen, memory_order_acquire);
    return n;
}

static void shm_taken_send(shm_ep_t *ep, const psc_advertised_t *advertised,
                           uint64_t bits, const void *buffer, size_t len)
{
    shm_taken_t taken = {.entry = advertised->entry,
                         .generation = advertised->generation,
                         .bits = bits,
                         .from = (uintptr_t)buffer,
                         .len = len};

    memcpy(shm_producer_begin(&ep->tx), &taken, sizeof taken);
    shm_am_publish(ep, shm_word_pack(SHM_KIND_TAKEN, 0, 0, sizeof taken),
                   sizeof taken);
    ep->tx.need = 0;
}

static void shm_send_release(shm_ep_t *ep, shm_copy_t *copy,
                             psc_status_t status)
{
    shm_placement_t *it = psc_container_of(copy, shm_placement_t, copy);

    shm_entry_change(&shm_table_peer(ep)->entries[it - ep->adverts->sends],
                     it->generation, SHM_ENTRY_TAKEN, SHM_ENTRY_ENDED);
    shm_placement_judge(ep, status);
}

psc_status_t shm_claim(psc_ep_t *super, const psc_advertised_t *advertised,
                       uint64_t bits, const void *buffer, size_t len,
                       psc_comp_t *comp)
{
    shm_ep_t *ep = shm_ep(super);
    shm_entry_t *entry = &shm_table_peer(ep)->entries[advertised->entry];
    uint64_t there =
        atomic_load_explicit(&entry->address, memory_order_relaxed);
    uint64_t room = atomic_load_explicit(&entry->len, memory_order_relaxed);
    psc_status_t status = shm_am_reserve(ep, 1);
    shm_adverts_t *adverts;
    shm_placement_t *it;

    if (status != PSC_OK)
        return status;
    adverts = shm_adverts_get(ep);
    /* a copy into the entry is in flight, or `room` is too large, only if the
     * peer violates the protocol */
    if (adverts == NULL ||
        psc_link_listed(&adverts->sends[advertised->entry].copy.listed) ||
        room > SHM_COPY_MAX ||
        !shm_entry_change(entry, advertised->generation, SHM_ENTRY_ADVERTISED,
                          SHM_ENTRY_TAKEN))
        return PSC_ERR_UNSUPPORTED;
    it = &adverts->sends[advertised->entry];
    *it = (shm_placement_t){
        .copy = {.side = SHM_BACK,
                 .here = (uint8_t *)(uintptr_t)buffer,
                 .there = there,
                 .len = len < room ? len : room,
                 .cursor = &entry->cursor,
                 .turn = shm_cursor_turn(advertised->generation),
                 .comp = comp,
                 .release = shm_send_release},
        .generation = advertised->generation};
    shm_copy_begin(ep, &it->copy);
    shm_taken_send(ep, advertised, bits, buffer, len);
    return PSC_INPROGRESS;
}

/* ---- the record ---- */

bool shm_adverts_taken(shm_ep_t *ep, shm_word_t word, const uint8_t *bytes)
{
    shm_placement_t *it;
    psc_exposed_t *recv;
    shm_taken_t taken;
    uint64_t state;

    if (word.len != sizeof taken || ep->adverts == NULL)
        return false;
    memcpy(&taken, bytes, sizeof taken);
    if (taken.entry >= SHM_ENTRIES)
        return false;
    it = &ep->adverts->recvs[taken.entry];
    recv = it->recv;
    if (recv == NULL || psc_link_listed(&it->copy.listed) ||
        taken.generation != it->generation || taken.len == 0 ||
        ((taken.bits ^ recv->match) & ~recv->ignore) != 0)
        return false;
    state = atomic_load_explicit(&shm_table_own(ep)->entries[taken.entry].word,
                                 memory_order_acquire);
    if (state != shm_entry_word(it->generation, SHM_ENTRY_TAKEN) &&
        state != shm_entry_word(it->generation, SHM_ENTRY_ENDED))
        return false;
    it->copy.there = taken.from;
    if (taken.len < it->copy.len)
        it->copy.len = taken.len;
    shm_copy_begin(ep, &it->copy);
    recv->taken(recv, taken.bits, taken.len);
    return true;
}

/* ---- the end ---- */

/* The core has withdrawn (shm_conceal) all receives that the peer had not
 * taken. The peer's records about the other receives are not read any more. */
void shm_adverts_close(shm_ep_t *ep)
{
    for (uint32_t i = 0; ep->adverts != NULL && i < SHM_ENTRIES; i++) {
        shm_placement_t *it = &ep->adverts->recvs[i];

        if (it->recv == NULL || psc_link_listed(&it->copy.listed))
            continue;
        it->copy.status = ep->status;
        shm_copy_begin(ep, &it->copy);
    }
}
