/* Large gets, in which both processes copy.
 *
 * The kernel copies on the core of the process that calls it, while the other
 * process only waits for the result. Therefore the getter asks the owner of the
 * memory to help. A cursor in shared memory holds how many pages each side has
 * taken, that is, copies or has copied: the getter from the front, the owner
 * from the end, so that if the same buffers are used again, each core has its
 * part of them in its cache. Each side advances the cursor before it copies a
 * piece: the getter reads from the owner's memory, the owner writes into the
 * getter's buffer. If the owner is computing and makes no progress, the getter
 * copies all pieces itself.
 *
 * The buffer is not written after the get has completed, because a get
 * completes when every byte that was taken has been copied, or when the owner
 * can take no more. */
#include <stdlib.h>
#include <string.h>

#include "memory.h"

/* A piece is half of the bytes that are left, within these bounds and in whole
 * pages, so that both sides finish at about the same time. A get that is
 * shorter than two of the shortest pieces is halved, too. */
#define SHM_PIECE_MIN (32u << 10)
#define SHM_PIECE_MAX SHM_PUT_MAX
#define SHM_PAGES_BITS (SHM_TAKEN_BITS / 2)
#define SHM_PAGES_MASK ((1ull << SHM_PAGES_BITS) - 1)

_Static_assert(SHM_GET_MAX <= SHM_CURSOR_MAX, "pages can be counted");
_Static_assert(sizeof(shm_control_t) <= 4096, "one page");

/* A get that this process has started. */
typedef struct shm_share {
    psc_link_t listed; /* link in the list ep->shares or iface->free_shares */
    uint8_t *buffer;
    psc_rkey_t key;
    uint64_t offset; /* offset of the get in the key's memory */
    /* length of the get; after a failure, the bytes that were taken for copying
     * until then */
    uint64_t len;
    uint64_t own; /* bytes that this process has taken for copying */
    uint64_t turn;
    /* index in the ring's `shares`; -1 if the owner of the memory has not been
     * asked to help */
    int slot;
    psc_status_t status;
    psc_comp_t *comp;
} shm_share_t;

/* Body of a record of kind ASK: a request to help with a get. */
typedef struct shm_ask {
    uint32_t slot, turn;
    /* address in the memory of the record's receiver, and in the buffer of its
     * sender */
    uint64_t from, to;
    uint64_t len;
    uint64_t seal, seal_address;
} shm_ask_t;

_Static_assert(sizeof(shm_ask_t) + SHM_WORD_SIZE <= SHM_LINE, "one line");

/* Adds `change` to the number of shared gets (gets that both processes copy).
 * An endpoint stays active (active.c) while it has one. */
static void shm_share_count(shm_ep_t *ep, int change)
{
    shm_ep_iface(ep)->n_sharing += (uint32_t)change;
    ep->n_sharing += (uint32_t)change;
    if (change > 0)
        shm_active_add(ep);
}

/* ---- the cursor ---- */

static uint64_t shm_pages(uint64_t len)
{
    return (len + SHM_CURSOR_PAGE - 1) / SHM_CURSOR_PAGE;
}

/* These functions return the number of pages that were taken from the front and
 * from the end. */
static uint64_t shm_cursor_fronts(uint64_t cursor)
{
    return cursor & SHM_PAGES_MASK;
}

static uint64_t shm_cursor_backs(uint64_t cursor)
{
    return cursor >> SHM_PAGES_BITS & SHM_PAGES_MASK;
}

/* Returns the offset below which the bytes were taken from the front. */
static uint64_t shm_cursor_front(uint64_t cursor)
{
    return shm_cursor_fronts(cursor) * SHM_CURSOR_PAGE;
}

/* Returns the offset from which on the bytes were taken from the end. */
static uint64_t shm_cursor_back(uint64_t cursor, uint64_t len)
{
    uint64_t taken = shm_cursor_backs(cursor);
    uint64_t pages = shm_pages(len);

    if (taken == 0)
        return len;
    return taken < pages ? (pages - taken) * SHM_CURSOR_PAGE : 0;
}

uint64_t shm_cursor_left(uint64_t cursor, uint64_t len)
{
    uint64_t front = shm_cursor_front(cursor);
    uint64_t back = shm_cursor_back(cursor, len);

    return front < back ? back - front : 0;
}

bool shm_cursor_copied(uint64_t cursor, uint64_t front, uint64_t back)
{
    return shm_pages(front) + shm_pages(back) >=
           shm_cursor_fronts(cursor) + shm_cursor_backs(cursor);
}

static uint64_t shm_piece(uint64_t left, uint64_t len)
{
    uint64_t least = len / 2 < SHM_PIECE_MIN ? len / 2 : SHM_PIECE_MIN;
    uint64_t piece = left / 2 < least ? least : left / 2;

    piece = shm_pages(piece) * SHM_CURSOR_PAGE;
    if (piece > SHM_PIECE_MAX)
        piece = SHM_PIECE_MAX;
    return piece < left ? piece : left;
}

uint64_t shm_cursor_take(_Atomic uint64_t *cursor, uint64_t turn, uint64_t len,
                         shm_side_t side, uint64_t *at_p)
{
    uint64_t now = atomic_load_explicit(cursor, memory_order_acquire);
    uint64_t left, piece, end;

    do {
        left = shm_cursor_left(now, len);
        if (now >> SHM_TAKEN_BITS != turn || left == 0)
            return 0;
        piece = shm_piece(left, len);
        end = shm_cursor_back(now, len);
        *at_p = side == SHM_FRONT
                    ? shm_cursor_front(now)
                    : (end - piece) / SHM_CURSOR_PAGE * SHM_CURSOR_PAGE;
        if (side == SHM_BACK)
            piece = end - *at_p;
    } while (!atomic_compare_exchange_weak(
        cursor, &now,
        now + (shm_pages(piece) << (side == SHM_BACK ? SHM_PAGES_BITS : 0))));
    return piece;
}

/* ---- our gets ---- */

static shm_share_slot_t *shm_share_slot(const shm_ep_t *ep,
                                        const shm_share_t *share)
{
    return &ep->tx.ring.control->shares[share->slot];
}

/* Asks the owner to help. If no slot or no room in the ring is free, the get
 * continues without help and asks again later. */
static void shm_share_ask(shm_ep_t *ep, shm_share_t *share)
{
    int slot = __builtin_ffs((int)~ep->share_slots) - 1;
    shm_ask_t ask = {.from = share->key.address + share->offset,
                     .to = (uintptr_t)share->buffer,
                     .len = share->len,
                     .seal = share->key.seal,
                     .seal_address = share->key.seal_address};
    shm_share_slot_t *shared;

    if (slot >= (int)SHM_SHARE_SLOTS || shm_am_reserve(ep, 1) != PSC_OK)
        return;
    ep->share_slots |= 1u << slot;
    share->slot = slot;
    ask.slot = (uint32_t)slot;
    ask.turn = ++ep->turn & (uint32_t)(UINT64_MAX >> SHM_TAKEN_BITS);
    share->turn = ask.turn;
    shared = shm_share_slot(ep, share);
    atomic_store_explicit(&shared->helped, 0, memory_order_relaxed);
    atomic_store_explicit(&shared->cursor,
                          share->turn << SHM_TAKEN_BITS | shm_pages(share->own),
                          memory_order_relaxed);
    memcpy(shm_producer_begin(&ep->tx), &ask, sizeof ask);
    shm_am_publish(ep, shm_word_pack(SHM_KIND_ASK, 0, 0, sizeof ask),
                   sizeof ask);
}

psc_status_t shm_share_start(shm_ep_t *ep, void *buffer, size_t len,
                             const psc_rkey_t *rkey, uint64_t offset,
                             psc_comp_t *comp)
{
    shm_iface_t *iface = shm_ep_iface(ep);
    psc_link_t *link = psc_list_pop(&iface->free_shares);
    shm_share_t *share = link ? psc_container_of(link, shm_share_t, listed)
                              : malloc(sizeof *share);

    if (share == NULL)
        return PSC_ERR_NO_MEMORY;
    *share = (shm_share_t){.buffer = buffer,
                           .key = *rkey,
                           .offset = offset,
                           .len = len,
                           .slot = -1,
                           .comp = comp};
    psc_list_init(&share->listed);
    psc_list_push(&ep->shares, &share->listed);
    shm_share_count(ep, +1);
    shm_share_ask(ep, share);
    return PSC_INPROGRESS;
}

/* Ends a get with an error: no more pieces are taken. Pieces that were taken
 * before may still be copied. */
static void shm_share_stop(shm_ep_t *ep, shm_share_t *share,
                           psc_status_t status)
{
    uint64_t taken = share->own;

    if (share->status != PSC_OK)
        return;
    share->status = status;
    if (share->slot >= 0)
        taken =
            share->len -
            shm_cursor_left(
                atomic_exchange(&shm_share_slot(ep, share)->cursor,
                                share->turn << SHM_TAKEN_BITS | SHM_TAKEN_MASK),
                share->len);
    share->len = taken;
}

static uint64_t shm_share_take(const shm_ep_t *ep, shm_share_t *share,
                               uint64_t *at_p)
{
    uint64_t piece;

    if (share->status != PSC_OK)
        return 0;
    if (share->slot >= 0) {
        piece = shm_cursor_take(&shm_share_slot(ep, share)->cursor, share->turn,
                                share->len, SHM_FRONT, at_p);
    } else {
        *at_p = share->own;
        piece = shm_piece(share->len - share->own, share->len);
    }
    share->own += piece;
    return piece;
}

/* Returns true if the get has completed. If the endpoint has no socket any
 * more, its peer writes no more. */
static bool shm_share_over(shm_ep_t *ep, shm_share_t *share)
{
    uint64_t helped = 0;

    if (share->slot >= 0)
        helped = atomic_load_explicit(&shm_share_slot(ep, share)->helped,
                                      memory_order_acquire);
    if (helped == SHM_HELP_FAILED || helped > share->len ||
        share->own > share->len - helped) {
        shm_share_stop(ep, share, PSC_ERR_TRANSPORT);
        return true;
    }
    return share->own + helped == share->len ||
           (share->status != PSC_OK && ep->sock == NULL);
}

static void shm_share_free(shm_ep_t *ep, shm_share_t *share)
{
    shm_iface_t *iface = shm_ep_iface(ep);

    if (share->slot >= 0)
        ep->share_slots &= ~(1u << share->slot);
    psc_list_remove(&share->listed);
    psc_list_push(&iface->free_shares, &share->listed);
    shm_share_count(ep, -1);
}

/* Copies a piece of the get, or completes the get. Returns 1 if either was
 * done. */
static unsigned shm_share_move(shm_ep_t *ep, shm_share_t *share)
{
    psc_comp_t *comp = share->comp;
    uint64_t at, piece = shm_share_take(ep, share, &at);
    psc_status_t status;

    if (piece > 0) {
        status = shm_cma_read(ep, share->buffer + at, piece, &share->key,
                              share->offset + at);
        if (status != PSC_OK)
            shm_share_stop(ep, share, status);
    }
    if (!shm_share_over(ep, share))
        return piece > 0;
    status = share->status;
    shm_share_free(ep, share);
    comp->func(comp, status);
    return 1;
}

static unsigned shm_share_poll_own(shm_ep_t *ep)
{
    unsigned n_slots = 0;

    psc_list_for_each(share, &ep->shares, shm_share_t, listed) {
        if (ep->state != SHM_EP_UP)
            shm_share_stop(ep, share, ep->status);
        else if (share->slot < 0)
            shm_share_ask(ep, share);
        if (shm_share_move(ep, share) > 0)
            return 1;
        if (++n_slots == SHM_SHARE_SLOTS)
            break;
    }
    return 0;
}

/* ---- the peer's gets ---- */

static void shm_help_end(shm_ep_t *ep, shm_help_t *help)
{
    if (help->mem == NULL)
        return;
    help->mem = NULL;
    shm_share_count(ep, -1);
}

/* The peer asks for help with a get. The previous get in the same slot has
 * completed. If the memory is not registered any more, this side has cancelled
 * the get, and the request is ignored. */
bool shm_share_asked(shm_ep_t *ep, shm_word_t word, const uint8_t *bytes)
{
    shm_iface_t *iface = shm_ep_iface(ep);
    const psc_mem_t *mem;
    shm_help_t *help;
    shm_ask_t ask;

    if (word.len != sizeof ask || !ep->cma)
        return false;
    memcpy(&ask, bytes, sizeof ask);
    if (ask.slot >= SHM_SHARE_SLOTS || ask.len > SHM_GET_MAX)
        return false;
    help = &ep->helps[ask.slot];
    shm_help_end(ep, help);
    mem = shm_mem_find(iface, ask.seal_address, ask.seal);
    if (mem == NULL)
        return true;
    if (ask.from < mem->address || ask.from - mem->address > mem->len ||
        ask.len > mem->len - (ask.from - mem->address))
        return false;
    *help = (shm_help_t){.mem = mem,
                         .seal = ask.seal,
                         .from = ask.from,
                         .to = ask.to,
                         .len = ask.len,
                         .turn = ask.turn};
    shm_share_count(ep, +1);
    return true;
}

/* Copies a piece of a get of the peer. If the piece cannot be written, `helped`
 * reports the failure, so that the peer does not wait for the piece. */
static unsigned shm_help_move(shm_ep_t *ep, shm_help_t *help,
                              shm_share_slot_t *shared)
{
    uint64_t at, piece = 0;
    psc_status_t status;

    if (ep->state == SHM_EP_UP && atomic_load(&help->mem->seal) == help->seal)
        piece = shm_cursor_take(&shared->cursor, help->turn, help->len,
                                SHM_BACK, &at);
    if (piece == 0) {
        shm_help_end(ep, help);
        return 0;
    }
    status = shm_cma_write(ep, (void *)(uintptr_t)(help->from + at), piece,
                           help->to + at);
    help->done += piece;
    atomic_store_explicit(&shared->helped,
                          status == PSC_OK ? help->done : SHM_HELP_FAILED,
                          memory_order_release);
    if (status != PSC_OK)
        shm_help_end(ep, help);
    return 1;
}

static unsigned shm_share_poll_peers(shm_ep_t *ep)
{
    shm_control_t *control = ep->rx.ring.control;

    for (uint32_t i = 0; i < SHM_SHARE_SLOTS; i++) {
        shm_help_t *help = &ep->helps[i];

        if (help->mem != NULL &&
            shm_help_move(ep, help, &control->shares[i]) > 0)
            return 1;
    }
    return 0;
}

unsigned shm_share_poll(shm_ep_t *ep)
{
    unsigned n = shm_share_poll_own(ep);

    return n + shm_share_poll_peers(ep);
}

/* ---- the end ---- */

void shm_share_drop(shm_ep_t *ep)
{
    for (uint32_t i = 0; i < SHM_SHARE_SLOTS; i++)
        shm_help_end(ep, &ep->helps[i]);
    psc_list_for_each(share, &ep->shares, shm_share_t, listed)
        shm_share_free(ep, share);
}

void shm_share_close(shm_iface_t *iface)
{
    psc_link_t *link;

    while ((link = psc_list_pop(&iface->free_shares)) != NULL)
        free(psc_container_of(link, shm_share_t, listed));
}
