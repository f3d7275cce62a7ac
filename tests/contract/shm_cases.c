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
    ct_side_open(&pair->side_a);
    pair->a = pair->b = &pair->side_a;
    ct_end_create(&pair->x, pair->a);
    ct_end_join_over(&pair->x, other->link, role);
}

void other_connect(other_t *other, ct_pair_t *pair)
{
    other_begin(other, pair,
                other->pid == 0 ? PSC_ROLE_ACCEPTOR : PSC_ROLE_CONNECTOR);
    ct_until(pair, pair->x.up || pair->x.failed);
    ct_check(pair->x.up, "%s", pair->x.reason);
}

/* ---- small rings ---- */

static void run_small(void)
{
    static const char *const messages[] = {
        "exchange_bcopy",    "exchange_short",     "back_pressure_bcopy",
        "back_pressure_odd", "kinds_keep_order",   "answer_inside_upcall",
        "wakes_for_room",    "wakes_for_messages",
    };

    for (size_t i = 0; i < sizeof(messages) / sizeof(messages[0]); i++)
        test_case_find(messages[i])->run();
}

CASE(two_slots)
{
    ct_set("RECVQ_SIZE", 2, "2");
    run_small();
}

CASE(smallest_ring)
{
    ct_set("RECVQ_SIZE", 2, "2");
    ct_set("BUFFER_SIZE", SHM_SLOT_MIN, "2k");
    run_small();
}

CASE(odd_slots)
{
    ct_set("RECVQ_SIZE", 7, "7");
    ct_set("BUFFER_SIZE", 3001, "3001");
    run_small();
    test_case_find("landing_scattered")->run();
}

/* Each side's ring has the size of its own settings. */
CASE(rings_of_unlike_sizes)
{
    ct_pair_t pair;

    ct_set("RECVQ_SIZE", 2, "2");
    ct_set("BUFFER_SIZE", SHM_SLOT_MIN, "2k");
    ct_side_open(&pair.side_a);
    ct_set("RECVQ_SIZE", 300, "300");
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
CASE(long_messages_in_pieces)
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

CASE(absurd_settings_are_refused)
{
    ct_set("RECVQ_SIZE", INT64_MAX, "inf");
    ct_side_refused("PSP_SHM_RECVQ_SIZE");
    ct_set("RECVQ_SIZE", 1, "1");
    ct_side_refused("PSP_SHM_RECVQ_SIZE");
    ct_set("RECVQ_SIZE", 64, "64");
    ct_set("BUFFER_SIZE", 100, "100");
    ct_side_refused("PSP_SHM_BUFFER_SIZE");
    ct_set("BUFFER_SIZE", 8192, "8k");
    ct_set("DIR", 0, "relative");
    ct_side_refused("PSP_SHM_DIR");
    ct_set("DIR", 0, "/nowhere/at/all");
    ct_side_refused("PSP_SHM_DIR");
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

CASE(nothing_stays_on_disk)
{
    char base[] = "/tmp/shm-case-XXXXXX", folder[SHM_PATH_MAX];
    const struct timespec old[2] = {{1000, 0}, {1000, 0}};
    ct_side_t side, second;
    other_t other;
    struct stat status;

    ct_check(mkdtemp(base) != NULL, "mkdtemp");
    ct_set("DIR", 0, base);
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
