/* Puts numbered items, which may overtake each other and arrive twice, back
 * into order. Numbers wrap around after 2^32 - 1. Pure: allocates nothing and
 * does not look into an item. Header only.
 *
 * The number of the next item is `expected`. An item is held from its arrival
 * until it is taken; items that are not held (repeated, or too far ahead) are
 * reported by the verdict and stay with the caller. */
#ifndef PSCOMPY_TRANSPORT_KIT_REORDER_H
#define PSCOMPY_TRANSPORT_KIT_REORDER_H

#include <stddef.h>
#include <stdint.h>

typedef struct psc_reorder {
    /* array of `size` places for items that arrived early; each item is at its
     * number modulo `size` */
    void **held;
    /* a power of two, so that consecutive numbers have consecutive places, also
     * when the number wraps around */
    uint32_t size;
    /* how many consecutive numbers, from `expected` on, are accepted; at most
     * `size` */
    uint32_t limit;
    uint32_t expected; /* number of the next item */
    uint32_t n_held;
} psc_reorder_t;

typedef enum psc_reorder_verdict {
    PSC_REORDER_NEXT, /* the item is the next one */
    PSC_REORDER_EARLY, /* held until the items before it were taken */
    PSC_REORDER_DUPLICATE, /* the item is held already or was taken before */
    PSC_REORDER_BEYOND /* the number exceeds the limit */
} psc_reorder_verdict_t;

/* Returns the number of places for a limit: the next power of two. */
static inline uint32_t psc_reorder_size(uint32_t limit)
{
    uint32_t size = 1;

    while (size < limit)
        size *= 2;
    return size;
}

static inline void **psc_reorder_place(const psc_reorder_t *order,
                                       uint32_t number)
{
    return &order->held[number & (order->size - 1)];
}

static inline psc_reorder_verdict_t
psc_reorder_judge(const psc_reorder_t *order, uint32_t number)
{
    uint32_t ahead = number - order->expected;

    if (ahead > UINT32_MAX / 2)
        return PSC_REORDER_DUPLICATE;
    if (ahead >= order->limit)
        return PSC_REORDER_BEYOND;
    if (*psc_reorder_place(order, number))
        return PSC_REORDER_DUPLICATE;
    return ahead == 0 ? PSC_REORDER_NEXT : PSC_REORDER_EARLY;
}

/* Returns the verdict on an item that has arrived, and holds the item if the
 * verdict is NEXT or EARLY. */
static inline psc_reorder_verdict_t psc_reorder_put(psc_reorder_t *order,
                                                    uint32_t number, void *item)
{
    psc_reorder_verdict_t verdict = psc_reorder_judge(order, number);

    if (verdict == PSC_REORDER_NEXT || verdict == PSC_REORDER_EARLY) {
        *psc_reorder_place(order, number) = item;
        order->n_held++;
    }
    return verdict;
}

/* Returns the next item, or NULL if it has not arrived. */
static inline void *psc_reorder_next(const psc_reorder_t *order)
{
    return *psc_reorder_place(order, order->expected);
}

/* Like psc_reorder_next(), but the item is removed. */
static inline void *psc_reorder_take(psc_reorder_t *order)
{
    void **place = psc_reorder_place(order, order->expected);
    void *item = *place;

    if (item) {
        *place = NULL;
        order->n_held--;
        order->expected++;
    }
    return item;
}

/* Skips the next item, which the caller uses without holding it (verdict
 * NEXT). */
static inline void psc_reorder_pass(psc_reorder_t *order)
{
    order->expected++;
}

/* Undoes the last psc_reorder_take(), which returned `item`; or the last
 * psc_reorder_pass() if `item` is NULL. */
static inline void psc_reorder_undo(psc_reorder_t *order, void *item)
{
    order->expected--;
    if (item) {
        *psc_reorder_place(order, order->expected) = item;
        order->n_held++;
    }
}

/* Returns a mask in which bit i is set if the item `expected` + 1 + i is held.
 * Used for acknowledgements. */
static inline uint64_t psc_reorder_early(const psc_reorder_t *order)
{
    uint32_t left = order->n_held - (psc_reorder_next(order) != NULL);
    uint64_t bits = 0;

    for (uint32_t i = 0; left > 0 && i < 64; i++) {
        if (*psc_reorder_place(order, order->expected + 1 + i)) {
            bits |= (uint64_t)1 << i;
            left--;
        }
    }
    return bits;
}

/* Removes and returns any item that is held, or returns NULL. Called repeatedly
 * to empty the structure. */
static inline void *psc_reorder_drop(psc_reorder_t *order)
{
    for (uint32_t i = 0; order->n_held > 0 && i < order->size; i++) {
        void *item = order->held[i];

        if (item) {
            order->held[i] = NULL;
            order->n_held--;
            return item;
        }
    }
    return NULL;
}

#endif
