/* Cases of shm alone: a peer that lies in the table of receives and in its
 * records. */
#include "shm_advert.h"

#define RECEIVES 6u

/* ---- takings that never happened ---- */

/* Copy of adverts.c's shm_taken_t. */
typedef struct taking {
    uint32_t entry, reserved;
    uint64_t generation, bits, from, len;
} taking_t;

static void taking_send(ct_pair_t *pair, const taking_t *taking)
{
    shm_ep_t *ep = end_ep(&pair->x);

    ct_check(shm_am_reserve(ep, 1) == PSC_OK, "room");
    memcpy(shm_producer_begin(&ep->tx), taking, sizeof *taking);
    shm_am_publish(ep, shm_word_pack(SHM_KIND_TAKEN, 0, 0, sizeof *taking),
                   sizeof *taking);
}

/* A record whose entry has this state is refused if it was `spoilt`. */
static void taking_is_refused(uint64_t state, void (*spoil)(taking_t *taking))
{
    advert_t shown = {.buffer = calloc(1, LEN)};
    char *from = calloc(1, LEN);
    shm_entry_t *entry;
    taking_t taking;
    ct_pair_t pair;

    ct_pair_up(&pair);
    advert_expose(&pair, &shown, 2);
    entry = &end_ep(&pair.x)->rx.ring.table->entries[shown.recv.entry];
    taking = (taking_t){.entry = shown.recv.entry,
                        .generation = atomic_load(&entry->word) >> 8,
                        .bits = 2,
                        .from = (uintptr_t)from,
                        .len = LEN};
    atomic_store(&entry->word, taking.generation << 8 | state);
    spoil(&taking);
    taking_send(&pair, &taking);
    ct_until(&pair, pair.y.failed);
    ct_check(pair.y.status == PSC_ERR_PROTOCOL, "%s", pair.y.reason);
    ct_pair_down(&pair);
    ct_check(shown.taken == 0 || state == 2, "taken");
    free(shown.buffer);
    free(from);
}

static void taking_right(taking_t *taking)
{
    (void)taking;
}

static void taking_of_none(taking_t *taking)
{
    taking->entry++;
}

static void taking_of_no_entry(taking_t *taking)
{
    taking->entry = SHM_ENTRIES;
}

static void taking_of_before(taking_t *taking)
{
    taking->generation--;
}

static void taking_of_other_bits(taking_t *taking)
{
    taking->bits++;
}

static void taking_of_nothing(taking_t *taking)
{
    taking->len = 0;
}

CASE(advert_false_takings, .caps = PSC_CAP_EXPOSE)
{
    enum { FREE, ADVERTISED, TAKEN };
    psc_advertised_t never = {.entry = 3, .generation = 1};
    ct_send_t send;
    ct_pair_t pair;

    taking_is_refused(ADVERTISED, taking_right);
    taking_is_refused(FREE, taking_right);
    taking_is_refused(TAKEN, taking_of_none);
    taking_is_refused(TAKEN, taking_of_no_entry);
    taking_is_refused(TAKEN, taking_of_before);
    taking_is_refused(TAKEN, taking_of_other_bits);
    taking_is_refused(TAKEN, taking_of_nothing);
    ct_pair_up(&pair);
    ct_send_make(&send);
    ct_check(ct_ops->claim(pair.x.ep, &never, 0, "", 1, &send.comp) ==
                 PSC_ERR_UNSUPPORTED,
             "claim of nothing");
    ct_exchange(&pair, &pair.x, &pair.y, CT_BCOPY, 10, 1);
    ct_pair_down(&pair);
}

/* ---- chance ---- */

/* Spoil a field that x may write: all but address and length, which only harm
 * their owner. */
static void advert_spoil(dice_t *dice, shm_table_t *table)
{
    shm_entry_t *entry = &table->entries[dice_roll(dice) % SHM_ENTRIES];
    uint64_t value = dice_roll(dice);

    switch (dice_roll(dice) % 12) {
    case 0:
        atomic_store(&entry->word, value % 2 ? value : value % 64 << 8 | 2);
        break;
    case 1:
        if (value % 2) /* of this turn */
            value = (atomic_load(&entry->cursor.taken) >> 40 << 40) |
                    (value & 0x3f) << 20 | (value >> 8 & 0x3f);
        atomic_store(&entry->cursor.taken, value);
        break;
    case 2:
        atomic_store(&entry->cursor.copied[SHM_BACK],
                     value % 2 ? value : value % (2 * LEN));
        break;
    case 3:
        atomic_store(&entry->cursor.copied[SHM_FRONT],
                     value % 2 ? value : value % (2 * LEN));
        break;
    case 4:
        atomic_store(&table->last, value);
        atomic_store(&table->mask, (uint32_t)value);
        break;
    default: /* most rounds end without */
        break;
    }
}

/* A record of kind TAKEN whose fields are partly right. */
static void advert_forge(dice_t *dice, ct_pair_t *pair, const char *from)
{
    uint64_t body[5] = {dice_roll(dice) % (SHM_ENTRIES + 2),
                        dice_roll(dice) % 64, dice_roll(dice) % 4,
                        (uintptr_t)from, dice_roll(dice) % (2 * LEN)};
    uint32_t len = sizeof body - (uint32_t)(dice_roll(dice) % 4 == 0);
    shm_ep_t *ep = end_ep(&pair->x);

    if (shm_am_reserve(ep, 1) != PSC_OK)
        return;
    memcpy(shm_producer_begin(&ep->tx), body, sizeof body);
    shm_am_publish(ep, shm_word_pack(SHM_KIND_TAKEN, 0, 0, len), len);
}

static void advert_claim(dice_t *dice, ct_pair_t *pair, ct_send_t *send,
                         const char *from)
{
    psc_advertised_t advertised[PSC_EXPOSED_MAX];
    uint64_t seen = 0;
    uint32_t n = ct_ops->exposed(pair->x.ep, advertised, &seen);

    ct_check(n <= PSC_EXPOSED_MAX, "%u", n);
    if (n == 0)
        return;
    ct_send_make(send);
    n = (uint32_t)(dice_roll(dice) % n);
    if (ct_ops->claim(pair->x.ep, &advertised[n], advertised[n].match, from,
                      LEN, &send->comp) != PSC_INPROGRESS)
        send->done = true;
}

/* Play with a new pair until one side notices, or for some rounds. */
static void advert_play(dice_t *dice, bool forge)
{
    advert_t shown[RECEIVES] = {0};
    ct_send_t sends[ROUNDS];
    char *from = calloc(1, 2 * LEN);
    ct_pair_t pair;

    ct_pair_up(&pair);
    for (unsigned i = 0; i < RECEIVES; i++)
        shown[i].buffer = malloc(LEN);
    for (unsigned round = 0; round < ROUNDS; round++) {
        advert_t *one = &shown[dice_roll(dice) % RECEIVES];

        ct_send_make(&sends[round]);
        if (!one->ours)
            advert_expose(&pair, one, dice_roll(dice) % 4);
        else if (one->taken == 0 && dice_roll(dice) % 4 == 0 &&
                 ct_ops->conceal(pair.y.ep, &one->recv, 0) == PSC_OK)
            one->ours = false;
        advert_claim(dice, &pair, &sends[round], from);
        if (forge && dice_roll(dice) % 16 == 0)
            advert_forge(dice, &pair, from);
        else
            advert_spoil(dice, end_ep(&pair.x)->rx.ring.table);
        ct_pair_progress(&pair);
        if (pair.x.failed || pair.y.failed)
            break;
    }
    for (unsigned i = 0; i < RECEIVES; i++)
        if (shown[i].ours && shown[i].taken == 0 &&
            ct_ops->conceal(pair.y.ep, &shown[i].recv, 0) == PSC_OK)
            shown[i].ours = false;
    ct_pair_down(&pair);
    for (unsigned i = 0; i < RECEIVES; i++) {
        ct_check(!shown[i].ours, "receive %u did not end", i);
        free(shown[i].buffer);
    }
    free(from);
}

CASE(advert_table_of_lies, .caps = PSC_CAP_EXPOSE)
{
    dice_t dice = {.state = 11};

    for (unsigned i = 0; i < 60; i++)
        advert_play(&dice, false);
}

CASE(advert_forged_records, .caps = PSC_CAP_EXPOSE)
{
    dice_t dice = {.state = 12};

    for (unsigned i = 0; i < 60; i++)
        advert_play(&dice, true);
}
