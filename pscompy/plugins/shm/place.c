/* Placements: copying messages into advertised receives that the sender has
 * taken (adverts.c).
 *
 * The bytes are copied in pieces, by whichever side calls progress: the
 * claimer, which has taken the receive for its message, writes into the
 * receive; the owner reads from the claimer's buffer. A side takes a piece by
 * advancing the entry's cursor, as in share.c, and counts it in the entry's
 * `put` or `got` when it has copied it. Either side stops the placement by a
 * bit of the cursor. The owner has its memory back only when all pieces that
 * were taken have been counted, or when the claimer's link has ended, so a
 * claimer whose process was stopped just before a copy does not write to memory
 * that has another use by then. A claimer that stops may reuse its buffer at
 * once: the owner checks the bit after it has read a piece.
 *
 * Memory orders: `put` and `got` are released after the copy and acquired by
 * the other side, and shm_ep_wake executes the fence that the flag `sleeping`
 * needs. */
#include "place.h"

#include <stdlib.h>

/* bit of an entry's cursor: a side has stopped copying the message (stopped the
 * placement) */
#define SHM_STOP (1ull << SHM_TAKEN_BITS)
#define SHM_TURN_MASK (UINT64_MAX >> (SHM_TAKEN_BITS + 1))

static uint64_t shm_entry_turn(uint64_t generation)
{
    return (generation & SHM_TURN_MASK) << 1;
}

uint64_t shm_cursor_first(uint64_t generation)
{
    return shm_entry_turn(generation) << SHM_TAKEN_BITS;
}

void shm_adverts_count(shm_ep_t *ep, int change)
{
    shm_iface_t *iface = shm_ep_iface(ep);

    iface->n_sharing += (uint32_t)change;
    iface->n_placing += (uint32_t)change;
    ep->n_sharing += (uint32_t)change;
    if (change > 0)
        shm_active_add(ep);
}

/* ---- copying ---- */

/* Stops a placement (the copy of a message into a receive that was taken): from
 * now on neither side takes a piece of it. */
static void shm_placement_stop(shm_placement_t *it, shm_entry_t *entry)
{
    if (!it->stopped)
        atomic_fetch_or(&entry->cursor, SHM_STOP);
    it->stopped = true;
}

static uint64_t shm_placement_take(shm_placement_t *it, shm_entry_t *entry,
                                   shm_side_t side, uint64_t *at_p)
{
    uint64_t piece = 0;

    if (!it->stopped)
        piece = shm_cursor_take(&entry->cursor, shm_entry_turn(it->generation),
                                it->len, side, at_p);
    it->own += piece;
    return piece;
}

/* Reports to the other side how many bytes of the message this side has
 * copied. */
static void shm_placement_report(shm_ep_t *ep, shm_placement_t *it,
                                 shm_entry_t *entry, _Atomic uint64_t *count,
                                 psc_status_t status)
{
    atomic_store_explicit(count, status == PSC_OK ? it->own : SHM_HELP_FAILED,
                          memory_order_release);
    it->status = status;
    if (status != PSC_OK)
        shm_placement_stop(it, entry);
    shm_ep_wake(ep);
}

/* Returns true if a piece is left that this side could copy. */
static bool shm_placement_has(const shm_placement_t *it, shm_entry_t *entry)
{
    uint64_t now = atomic_load_explicit(&entry->cursor, memory_order_acquire);

    return !it->stopped &&
           now >> SHM_TAKEN_BITS == shm_entry_turn(it->generation) &&
           shm_cursor_left(now, it->len) > 0;
}

/* Returns true if all bytes of the message have been copied, even if a side has
 * set the bit SHM_STOP. Sets *status_p to an error if some bytes will never be
 * copied. `others` is the number of bytes that the other side has copied. */
static bool shm_placement_whole(const shm_placement_t *it, uint64_t others,
                                psc_status_t *status_p)
{
    *status_p = it->status;
    if (others == SHM_HELP_FAILED && it->status == PSC_OK)
        *status_p = PSC_ERR_TRANSPORT;
    else if (others != SHM_HELP_FAILED &&
             (others > it->len || it->own > it->len - others))
        *status_p = PSC_ERR_PROTOCOL;
    return it->own + others == it->len;
}

/* Returns true if nobody accesses the memory of this side's receive any
 * more. */
static bool shm_recv_over(const shm_ep_t *ep, const shm_placement_t *it,
                          shm_entry_t *entry, psc_status_t *status_p)
{
    uint64_t now = atomic_load_explicit(&entry->cursor, memory_order_acquire);
    uint64_t put = atomic_load_explicit(&entry->put, memory_order_acquire);

    if (shm_placement_whole(it, put, status_p) ||
        *status_p == PSC_ERR_PROTOCOL || put == SHM_HELP_FAILED)
        return true;
    if (*status_p == PSC_OK)
        *status_p = ep->status < 0 ? ep->status : PSC_ERR_PEER_LOST;
    return ep->sock == NULL ||
           ((now & SHM_STOP) != 0 && shm_cursor_copied(now, it->own, put));
}

/* Returns true if the claimer needs neither the entry nor the buffer of its
 * message any more. */
static bool shm_send_over(const shm_ep_t *ep, const shm_placement_t *it,
                          shm_entry_t *entry, psc_status_t *status_p)
{
    uint64_t now = atomic_load_explicit(&entry->cursor, memory_order_acquire);
    uint64_t got = atomic_load_explicit(&entry->got, memory_order_acquire);

    if (shm_placement_whole(it, got, status_p) || *status_p != PSC_OK)
        return true;
    if (atomic_load_explicit(&entry->word, memory_order_relaxed) !=
        shm_entry_word(it->generation, SHM_ENTRY_TAKEN))
        *status_p = PSC_ERR_PROTOCOL;
    else if ((now & SHM_STOP) != 0)
        *status_p = ep->status < 0 ? ep->status : PSC_ERR_PEER_LOST;
    return *status_p != PSC_OK;
}

static void shm_placement_judge(shm_ep_t *ep, psc_status_t status)
{
    if (status == PSC_ERR_PROTOCOL)
        shm_ep_fail(ep, status,
                    "shm: the peer reports more bytes than the message has");
}

/* Stops copying a message into a receive that we expose. From now on progress
 * checks with every tick of the timer whether the copy has ended, because a
 * closed endpoint is not woken. */
static void shm_recv_stop(shm_ep_t *ep, shm_placement_t *it, shm_entry_t *entry)
{
    if (!it->stopped)
        shm_timer_run(shm_ep_iface(ep), +1);
    shm_placement_stop(it, entry);
}

static void shm_recv_end(shm_ep_t *ep, uint32_t i, psc_status_t status)
{
    shm_placement_t *it = &ep->adverts->recvs[i];
    psc_exposed_t *recv = it->recv;

    if (it->stopped)
        shm_timer_run(shm_ep_iface(ep), -1);
    it->recv = NULL;
    ep->adverts->landing &= ~(1u << i);
    ep->adverts->landed |= 1u << i;
    shm_adverts_count(ep, -1);
    shm_placement_judge(ep, status);
    recv->landed(recv, status);
}

static unsigned shm_recv_move(shm_ep_t *ep, uint32_t i)
{
    shm_placement_t *it = &ep->adverts->recvs[i];
    shm_entry_t *entry = &shm_table_own(ep)->entries[i];
    psc_status_t status;
    uint64_t at, piece;

    if (ep->state != SHM_EP_UP)
        shm_recv_stop(ep, it, entry);
    piece = shm_placement_take(it, entry, SHM_FRONT, &at);
    if (piece > 0) {
        status = shm_cma_fetch(ep, it->buffer + at, piece, it->there + at);
        atomic_thread_fence(memory_order_seq_cst);
        if (status == PSC_OK && (atomic_load(&entry->cursor) & SHM_STOP) != 0)
            /* the claimer (the sender of the message) may have reused its
             * buffer */
            status = PSC_ERR_PEER_LOST;
        if (status != PSC_OK)
            shm_recv_stop(ep, it, entry);
        shm_placement_report(ep, it, entry, &entry->got, status);
    }
    if (!shm_recv_over(ep, it, entry, &status))
        return piece > 0;
    shm_recv_end(ep, i, status);
    return 1;
}

static unsigned shm_send_move(shm_ep_t *ep, uint32_t i)
{
    shm_placement_t *it = &ep->adverts->sends[i];
    shm_entry_t *entry = &shm_table_peer(ep)->entries[i];
    psc_comp_t *comp = it->comp;
    psc_status_t status;
    uint64_t at, piece;

    if (ep->state != SHM_EP_UP)
        shm_placement_stop(it, entry);
    piece = shm_placement_take(it, entry, SHM_BACK, &at);
    if (piece > 0)
        shm_placement_report(
            ep, it, entry, &entry->put,
            shm_cma_write(ep, it->buffer + at, piece, it->there + at));
    if (!shm_send_over(ep, it, entry, &status))
        return piece > 0;
    shm_placement_stop(it, entry);
    shm_entry_change(entry, it->generation, SHM_ENTRY_TAKEN, SHM_ENTRY_ENDED);
    ep->adverts->placing &= ~(1u << i);
    shm_adverts_count(ep, -1);
    shm_placement_judge(ep, status);
    comp->func(comp, status);
    return 1;
}

/* Copies one piece of a placement, or completes a placement. Returns 0 if there
 * was nothing to do. An upcall may finalise the endpoint, so at most one upcall
 * is made. */
unsigned shm_adverts_poll(shm_ep_t *ep)
{
    if (ep->adverts == NULL)
        return 0;
    for (uint32_t rest = ep->adverts->placing; rest != 0; rest &= rest - 1)
        if (shm_send_move(ep, (uint32_t)__builtin_ctz(rest)) > 0)
            return 1;
    for (uint32_t rest = ep->adverts->landing; rest != 0; rest &= rest - 1)
        if (shm_recv_move(ep, (uint32_t)__builtin_ctz(rest)) > 0)
            return 1;
    return 0;
}

void shm_recv_begin(shm_ep_t *ep, uint32_t i)
{
    ep->adverts->landing |= 1u << i;
    shm_adverts_count(ep, +1);
}

/* ---- sleeping ---- */

/* Called before this process sleeps, when its flags `sleeping` are set: a side
 * that copies the last piece of a message after this check wakes the other
 * side. */
bool shm_adverts_pending(const shm_ep_t *ep)
{
    psc_status_t ignored;

    if (ep->adverts == NULL)
        return false;
    for (uint32_t rest = ep->adverts->placing; rest != 0; rest &= rest - 1) {
        uint32_t i = (uint32_t)__builtin_ctz(rest);
        const shm_placement_t *it = &ep->adverts->sends[i];
        shm_entry_t *entry = &shm_table_peer(ep)->entries[i];

        if (ep->state != SHM_EP_UP || shm_placement_has(it, entry) ||
            shm_send_over(ep, it, entry, &ignored))
            return true;
    }
    for (uint32_t rest = ep->adverts->landing; rest != 0; rest &= rest - 1) {
        uint32_t i = (uint32_t)__builtin_ctz(rest);
        const shm_placement_t *it = &ep->adverts->recvs[i];
        shm_entry_t *entry = &shm_table_own(ep)->entries[i];

        if ((ep->state != SHM_EP_UP && !it->stopped) ||
            shm_placement_has(it, entry) ||
            shm_recv_over(ep, it, entry, &ignored))
            return true;
    }
    return false;
}

/* ---- the end ---- */

/* The core has withdrawn (shm_conceal) all receives that the peer had not
 * taken. The peer's records about the other receives are not read any more. */
void shm_adverts_close(shm_ep_t *ep)
{
    shm_adverts_t *adverts = ep->adverts;

    if (adverts == NULL)
        return;
    for (uint32_t i = 0; i < SHM_ENTRIES; i++) {
        shm_placement_t *it = &adverts->recvs[i];

        if (it->recv == NULL)
            continue;
        if ((adverts->landing & 1u << i) == 0) {
            it->status = ep->status;
            shm_recv_begin(ep, i);
        }
        shm_recv_stop(ep, it, &shm_table_own(ep)->entries[i]);
    }
}

bool shm_adverts_idle(const shm_ep_t *ep)
{
    return ep->adverts == NULL ||
           (ep->adverts->landing | ep->adverts->placing) == 0;
}

void shm_adverts_drop(shm_ep_t *ep)
{
    shm_adverts_t *adverts = ep->adverts;

    if (adverts == NULL)
        return;
    for (uint32_t i = 0; i < SHM_ENTRIES; i++) {
        bool landing = (adverts->landing & 1u << i) != 0;

        if (landing && adverts->recvs[i].stopped)
            shm_timer_run(shm_ep_iface(ep), -1);
        shm_adverts_count(ep, -(int)landing);
        shm_adverts_count(ep, -(int)((adverts->placing & 1u << i) != 0));
    }
    free(adverts);
    ep->adverts = NULL;
}
