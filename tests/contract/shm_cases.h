/* Declarations that the files of shm's own cases share. The cases use the
 * transport's own structures, because a peer can do so too. */
#ifndef PSCOMPY_TESTS_CONTRACT_SHM_CASES_H
#define PSCOMPY_TESTS_CONTRACT_SHM_CASES_H

#include "harness.h"
#include "pscompy/plugins/shm/memory.h"

static inline shm_ep_t *end_ep(ct_end_t *end)
{
    return (shm_ep_t *)end->ep;
}

static inline shm_iface_t *side_iface(ct_side_t *side)
{
    return (shm_iface_t *)side->iface;
}

/* Change one setting for the interfaces opened from now on. */
void set(const char *name, int64_t number, const char *text);

/* ---- memory of the other side ---- */

typedef struct remote {
    psc_mem_t *mem;
    uint8_t packed[PSC_RKEY_MAX];
    size_t len;
} remote_t;

void remote_make(ct_end_t *end, void *base, size_t len, remote_t *remote);
/* The final status of a get whose call returned `status`. */
psc_status_t get_ended(ct_pair_t *pair, psc_status_t status, ct_send_t *send);

/* ---- chance ---- */

typedef struct dice {
    uint64_t state;
} dice_t;

static inline uint64_t dice_roll(dice_t *dice)
{
    dice->state = dice->state * 6364136223846793005ull + 1442695040888963407ull;
    return dice->state >> 20 ^ dice->state << 40;
}

/* ---- a second process ---- */

typedef struct other {
    pid_t pid;
    int link; /* SOCK_SEQPACKET */
} other_t;

/* Returns true in the child process. */
bool other_fork(other_t *other);
int other_wait(other_t *other);
/* Waits for the child, which must have exited with 0. */
void other_check(other_t *other);
/* Opens a side and an end, and starts to connect them with the other
 * process. */
void other_begin(other_t *other, ct_pair_t *pair, psc_role_t role);
void other_connect(other_t *other, ct_pair_t *pair);

/* ---- the cases ---- */

void two_slots(void);
void smallest_ring(void);
void odd_slots(void);
void rings_of_unlike_sizes(void);
void long_messages_in_pieces(void);
void absurd_settings_are_refused(void);
void garbage_in_rings(void);
void forged_words_are_refused(void);
void consumer_lies(void);
void only_sealed_rings_are_mapped(void);
void absurd_geometry(void);
void strangers_are_turned_away(void);
void impostor_is_refused(void);
void unproved_offer_is_refused(void);
void silent_callers_are_bounded(void);
void other_user_is_turned_away(void);
void unreachable_is_told(void);
void cma_off_on_one_side(void);
void cma_demanded_in_vain(void);
void put_into_a_hole(void);
void put_and_get_between_processes(void);
void share_between_both(void);
void share_without_help(void);
void share_more_than_slots(void);
void share_waits_for_room(void);
void share_of_what_is_gone(void);
void share_into_what_is_gone(void);
void share_ends_with_its_endpoint(void);
void share_outlives_its_helper(void);
void share_forged_asks(void);
void share_lying_helper(void);
void stopped_put_and_region(void);
void stopped_put_and_other_region(void);
void stopped_put_and_close(void);
void stopped_put_and_failure(void);
void stopped_put_wakes_its_owner(void);
void stopped_helper_and_close(void);
void stopped_helper_and_failure(void);
void stopped_proof(void);
void other_pid_namespace(void);
void death_shows_despite_heirs(void);
void killed_in_every_stage(void);
void naps_between_processes(void);
void nothing_stays_on_disk(void);
void two_descriptors_each(void);
void goodbye_wakes(void);
void end_without_goodbye_wakes(void);
void refusal_wakes(void);
void goodbye_behind_a_message(void);
void goodbye_to_one_that_polls(void);
void idle_rings_are_read(void);
void idle_rings_wake(void);
void spoilt_board(void);
void board_full_of_lies(void);
void bit_of_another(void);
void more_than_all_bits(void);
void absurd_bit_is_refused(void);
void idle_peer_closes(void);
void idle_peer_is_killed(void);
void idle_rings_between_processes(void);
void unused_pages_are_released(void);
void unread_pages_are_kept(void);
void sleepers_release(void);
void releases_of_a_liar(void);
void rings_between_threads(void);
void a_rank_answers(void);
void ranks_call_each_other(void);
void a_call_is_refused(void);
void a_call_without_the_key(void);
void a_call_of_nobody(void);

#endif
