/* Cases of shm alone: sizes of rings, settings, files left on disk; and the
 * table of all its cases. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm_cases.h"

void set(const char *name, int64_t number, const char *text)
{
    ct_set(name, number, text);
}

/* ---- a second process ---- */

bool other_fork(other_t *other)
{
    int links[2];

    ct_check(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, links) == 0, "socketpair");
    fflush(NULL);
    other->pid = fork();
    ct_check(other->pid >= 0, "fork");
    other->link = links[other->pid == 0];
    close(links[other->pid != 0]);
    if (other->pid == 0)
        alarm(2 * CT_PATIENCE_S);
    return other->pid == 0;
}

int other_wait(other_t *other)
{
    int status;

    ct_check(waitpid(other->pid, &status, 0) == other->pid, "wait");
    close(other->link);
    return status;
}

void other_check(other_t *other)
{
    int status = other_wait(other);

    ct_check(WIFEXITED(status) && WEXITSTATUS(status) == 0,
             "the other process ended with status 0x%x", status);
}

void other_begin(other_t *other, ct_pair_t *pair, psc_role_t role)
{
    uint8_t address[PSC_ADDRESS_MAX];
    size_t len = sizeof(address);
    ssize_t n;

    ct_side_open(&pair->side_a);
    pair->a = pair->b = &pair->side_a;
    ct_end_create(&pair->x, pair->a);
    ct_check(ct_ops->ep_address(pair->x.ep, address, &len) == PSC_OK,
             "address");
    ct_check(write(other->link, address, len) == (ssize_t)len, "link");
    n = read(other->link, address, sizeof(address));
    ct_check(n > 0, "the other process is gone");
    ct_check(ct_end_connect(&pair->x, role, ct_token, address, (size_t)n) ==
                 PSC_INPROGRESS,
             "ep_connect");
}

void other_connect(other_t *other, ct_pair_t *pair)
{
    other_begin(other, pair,
                other->pid == 0 ? PSC_ROLE_ACCEPTOR : PSC_ROLE_CONNECTOR);
    ct_until(pair, pair->x.up || pair->x.failed);
    ct_check(pair->x.up, "%s", pair->x.reason);
}

/* ---- small rings ---- */

static void run_case(const ct_case_t *table, const char *name)
{
    for (; table->name; table++) {
        if (strcmp(table->name, name) == 0) {
            table->run();
            return;
        }
    }
    ct_check(false, "no case %s", name);
}

static void run_small(void)
{
    static const char *const messages[] = {
        "exchange_bcopy",    "exchange_short",   "back_pressure_bcopy",
        "back_pressure_odd", "kinds_keep_order", "answer_inside_upcall",
    };

    for (size_t i = 0; i < sizeof(messages) / sizeof(messages[0]); i++)
        run_case(ct_message_cases, messages[i]);
    run_case(ct_event_cases, "wakes_for_room");
    run_case(ct_event_cases, "wakes_for_messages");
}

void two_slots(void)
{
    set("RECVQ_SIZE", 2, "2");
    run_small();
}

void smallest_ring(void)
{
    set("RECVQ_SIZE", 2, "2");
    set("BUFFER_SIZE", SHM_SLOT_MIN, "2k");
    run_small();
}

void odd_slots(void)
{
    set("RECVQ_SIZE", 7, "7");
    set("BUFFER_SIZE", 3001, "3001");
    run_small();
    run_case(ct_message_cases, "landing_scattered");
}

/* Each side's ring has the size of its own settings. */
void rings_of_unlike_sizes(void)
{
    ct_pair_t pair;

    set("RECVQ_SIZE", 2, "2");
    set("BUFFER_SIZE", SHM_SLOT_MIN, "2k");
    ct_side_open(&pair.side_a);
    set("RECVQ_SIZE", 300, "300");
    ct_side_open(&pair.side_b);
    pair.a = &pair.side_a;
    pair.b = &pair.side_b;
    ct_end_create(&pair.x, pair.a);
    ct_end_create(&pair.y, pair.b);
    ct_pair_connect(&pair);
    ct_exchange(&pair, &pair.x, &pair.y, CT_BCOPY, ct_longest(pair.a, CT_BCOPY),
                2);
    ct_exchange(&pair, &pair.y, &pair.x, CT_BCOPY, ct_longest(pair.b, CT_BCOPY),
                2);
    ct_check(pair.x.begun > 0 && pair.y.begun == 0, "how they came");
    ct_pair_down(&pair);
}

/* The receiver begins to copy before the sender has copied all of a message,
 * also one that a slot would hold. */
void long_messages_in_pieces(void)
{
    ct_pair_t pair;

    ct_pair_up(&pair);
    ct_exchange(&pair, &pair.x, &pair.y, CT_BCOPY, SHM_PIECE / 2, 2);
    ct_check(pair.y.begun == 0, "in one piece");
    ct_exchange(&pair, &pair.x, &pair.y, CT_BCOPY, 2 * SHM_PIECE, 2);
    ct_check(pair.y.begun == 1, "in pieces");
    ct_pair_down(&pair);
}

/* ---- settings that cannot be ---- */

static void open_fails(const char *expected)
{
    char reason[PSC_REASON_MAX] = "";
    psc_upcalls_t up = {.abi = PSC_TRANSPORT_ABI};
    psc_open_params_t params = {
        .abi = PSC_TRANSPORT_ABI,
        .up = &up,
        .settings = ct_settings,
        .n_settings = ct_n_settings,
        .reason = reason,
    };
    psc_iface_t *iface = NULL;

    ct_check(ct_ops->open(&params, &iface) < 0 && iface == NULL, "opened");
    ct_check(strstr(reason, expected) != NULL, "reason: %s", reason);
    puts(reason);
}

void absurd_settings_are_refused(void)
{
    set("RECVQ_SIZE", INT64_MAX, "inf");
    open_fails("PSP_SHM_RECVQ_SIZE");
    set("RECVQ_SIZE", 1, "1");
    open_fails("PSP_SHM_RECVQ_SIZE");
    set("RECVQ_SIZE", 64, "64");
    set("BUFFER_SIZE", 100, "100");
    open_fails("PSP_SHM_BUFFER_SIZE");
    set("BUFFER_SIZE", 8192, "8k");
    set("DIR", 0, "relative");
    open_fails("PSP_SHM_DIR");
    set("DIR", 0, "/nowhere/at/all");
    open_fails("PSP_SHM_DIR");
}

/* ---- what stays on disk ---- */

static unsigned folders_in(const char *base)
{
    DIR *entries = opendir(base);
    struct dirent *entry;
    unsigned n = 0;

    while ((entry = readdir(entries)) != NULL)
        n += strncmp(entry->d_name, "pscompy-", 8) == 0;
    closedir(entries);
    return n;
}

void nothing_stays_on_disk(void)
{
    char base[] = "/tmp/shm-case-XXXXXX", folder[SHM_PATH_MAX];
    const struct timespec old[2] = {{1000, 0}, {1000, 0}};
    ct_side_t side, second;
    other_t other;
    struct stat status;

    ct_check(mkdtemp(base) != NULL, "mkdtemp");
    set("DIR", 0, base);
    ct_side_open(&side);
    strcpy(folder, side_iface(&side)->listener.folder);
    ct_check(stat(folder, &status) == 0 && (status.st_mode & 0777) == 0700,
             "mode %o", status.st_mode);
    ct_side_close(&side);
    ct_check(folders_in(base) == 0, "close left its folder");
    if (other_fork(&other)) {
        ct_side_open(&side);
        strcpy(folder, side_iface(&side)->listener.folder);
        ct_check(write(other.link, folder, sizeof(folder)) > 0, "link");
        raise(SIGKILL);
    }
    ct_check(read(other.link, folder, sizeof(folder)) > 0, "link");
    other_wait(&other);
    ct_check(folders_in(base) == 1, "nothing to sweep");
    ct_check(utimensat(AT_FDCWD, folder, old, 0) == 0, "utimensat");
    ct_side_open(&side); /* removes the deserted folder */
    ct_check(folders_in(base) == 1, "what a killed process left");
    ct_check(utimensat(AT_FDCWD, side_iface(&side)->listener.folder, old, 0) ==
                 0,
             "utimensat");
    ct_side_open(&second); /* must not remove the folder of the running one */
    ct_check(access(side_iface(&side)->listener.path, F_OK) == 0,
             "swept alive");
    ct_side_close(&second);
    ct_side_close(&side);
    ct_check(rmdir(base) == 0, "something stayed in %s", base);
}

const ct_case_t ct_own_cases[] = {
    {"two_slots", two_slots, 0, false},
    {"smallest_ring", smallest_ring, 0, false},
    {"odd_slots", odd_slots, 0, false},
    {"rings_of_unlike_sizes", rings_of_unlike_sizes, 0, false},
    {"long_messages_in_pieces", long_messages_in_pieces, 0, false},
    {"absurd_settings_are_refused", absurd_settings_are_refused, 0, false},
    {"garbage_in_rings", garbage_in_rings, 0, false},
    {"forged_words_are_refused", forged_words_are_refused, 0, false},
    {"consumer_lies", consumer_lies, 0, false},
    {"only_sealed_rings_are_mapped", only_sealed_rings_are_mapped, 0, false},
    {"absurd_geometry", absurd_geometry, 0, false},
    {"a_rank_answers", a_rank_answers, 0, true},
    {"ranks_call_each_other", ranks_call_each_other, 0, true},
    {"a_call_is_refused", a_call_is_refused, 0, true},
    {"a_call_without_the_key", a_call_without_the_key, 0, true},
    {"a_call_of_nobody", a_call_of_nobody, 0, true},
    {"strangers_are_turned_away", strangers_are_turned_away, 0, false},
    {"impostor_is_refused", impostor_is_refused, 0, false},
    {"unproved_offer_is_refused", unproved_offer_is_refused, 0, false},
    {"silent_callers_are_bounded", silent_callers_are_bounded, 0, false},
    {"other_user_is_turned_away", other_user_is_turned_away, 0, false},
    {"unreachable_is_told", unreachable_is_told, 0, false},
    {"cma_off_on_one_side", cma_off_on_one_side, PSC_CAP_PUT, false},
    {"cma_demanded_in_vain", cma_demanded_in_vain, PSC_CAP_PUT, false},
    {"put_into_a_hole", put_into_a_hole, PSC_CAP_PUT, false},
    {"put_and_get_between_processes", put_and_get_between_processes,
     PSC_CAP_PUT, false},
    {"share_between_both", share_between_both, PSC_CAP_GET, false},
    {"share_without_help", share_without_help, PSC_CAP_GET, false},
    {"share_more_than_slots", share_more_than_slots, PSC_CAP_GET, false},
    {"share_waits_for_room", share_waits_for_room, PSC_CAP_GET, false},
    {"share_of_what_is_gone", share_of_what_is_gone, PSC_CAP_GET, false},
    {"share_into_what_is_gone", share_into_what_is_gone, PSC_CAP_GET, false},
    {"share_ends_with_its_endpoint", share_ends_with_its_endpoint, PSC_CAP_GET,
     false},
    {"share_outlives_its_helper", share_outlives_its_helper, PSC_CAP_GET,
     false},
    {"share_forged_asks", share_forged_asks, PSC_CAP_GET, false},
    {"share_lying_helper", share_lying_helper, PSC_CAP_GET, false},
    {"stopped_put_and_region", stopped_put_and_region, PSC_CAP_PUT, false},
    {"stopped_put_and_other_region", stopped_put_and_other_region, PSC_CAP_PUT,
     false},
    {"stopped_put_and_close", stopped_put_and_close, PSC_CAP_PUT, false},
    {"stopped_put_and_failure", stopped_put_and_failure, PSC_CAP_PUT, false},
    {"stopped_put_wakes_its_owner", stopped_put_wakes_its_owner, PSC_CAP_PUT,
     false},
    {"stopped_helper_and_close", stopped_helper_and_close, PSC_CAP_GET, false},
    {"stopped_helper_and_failure", stopped_helper_and_failure, PSC_CAP_GET,
     false},
    {"stopped_proof", stopped_proof, PSC_CAP_PUT, false},
    {"other_pid_namespace", other_pid_namespace, 0, false},
    {"death_shows_despite_heirs", death_shows_despite_heirs, 0, false},
    {"killed_in_every_stage", killed_in_every_stage, 0, false},
    {"naps_between_processes", naps_between_processes, 0, false},
    {"nothing_stays_on_disk", nothing_stays_on_disk, 0, false},
    {"two_descriptors_each", two_descriptors_each, 0, false},
    {"goodbye_wakes", goodbye_wakes, 0, false},
    {"end_without_goodbye_wakes", end_without_goodbye_wakes, 0, false},
    {"refusal_wakes", refusal_wakes, 0, false},
    {"goodbye_behind_a_message", goodbye_behind_a_message, 0, false},
    {"goodbye_to_one_that_polls", goodbye_to_one_that_polls, 0, false},
    {"idle_rings_are_read", idle_rings_are_read, 0, false},
    {"idle_rings_wake", idle_rings_wake, 0, false},
    {"spoilt_board", spoilt_board, 0, false},
    {"board_full_of_lies", board_full_of_lies, 0, false},
    {"bit_of_another", bit_of_another, 0, false},
    {"more_than_all_bits", more_than_all_bits, 0, false},
    {"absurd_bit_is_refused", absurd_bit_is_refused, 0, false},
    {"idle_peer_closes", idle_peer_closes, 0, false},
    {"idle_peer_is_killed", idle_peer_is_killed, 0, false},
    {"idle_rings_between_processes", idle_rings_between_processes, 0, false},
    {"unused_pages_are_released", unused_pages_are_released, 0, false},
    {"unread_pages_are_kept", unread_pages_are_kept, 0, false},
    {"sleepers_release", sleepers_release, 0, false},
    {"releases_of_a_liar", releases_of_a_liar, 0, false},
    {"rings_between_threads", rings_between_threads, 0, false},
    {NULL, NULL, 0, false},
};
