/* Three ranks that open and close, again and again, while messages are on
 * their way; and entries that are taken back from an interface which says so
 * although a message has used them up. */
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "portals_cases.h"

#define RANKS 3
#define PEERS (RANKS - 1)
#define RECEIVES 6
#define ROUNDS 20
#define MESSAGES 40

/* One of the two connections of a rank. */
typedef struct link {
    ct_end_t end;
    int wire;           /* socket to the peer's process */
    bool first;         /* this side connects */
    bool matches;       /* the interface matches messages */
    landed_t *receives; /* array of RECEIVES elements */
} link_t;

/* ---- receives ---- */

static void receive_done(psc_tag_recv_t *recv, psc_status_t status,
                         uint64_t bits, size_t len)
{
    landed_t *landed = (landed_t *)(void *)recv;

    (void)bits, (void)len, (void)status;
    ct_check(!landed->done, "done twice");
    landed->done = true;
}

/* Posts receives; each message matches one of them. */
static void receives_post(link_t *link)
{
    char reason[PSC_REASON_MAX];

    link->matches =
        link->end.up && ct_ops->tag_ready(link->end.ep, reason) == PSC_OK;
    link->receives = calloc(RECEIVES, sizeof(*link->receives));
    for (int i = 0; i < RECEIVES; i++) {
        landed_t *landed = &link->receives[i];

        landed->recv = (psc_tag_recv_t){
            .source = link->end.ep,
            .match = (uint64_t)i,
            .buffer = {landed->buffer, sizeof(landed->buffer)},
            .done = receive_done,
        };
        landed->done = !link->matches ||
                       ct_ops->tag_post(link->end.ep, &landed->recv) != PSC_OK;
    }
}

/* A receive that tag_cancel could not withdraw completes; then the memory is
 * the user's. */
static void receives_cancel(link_t *link)
{
    for (int i = 0; i < RECEIVES; i++) {
        landed_t *landed = &link->receives[i];
        int64_t deadline = ct_deadline();

        if (landed->done ||
            ct_ops->tag_cancel(link->end.ep, &landed->recv) == PSC_OK)
            continue;
        while (!landed->done) {
            ct_side_progress(link->end.side);
            ct_check(psc_clock_now() < deadline,
                     "receive %d has matched, and "
                     "is not done",
                     i);
        }
    }
    free(link->receives);
}

/* ---- a round of one rank ---- */

static void link_open(link_t *link, ct_side_t *side)
{
    uint8_t address[PSC_ADDRESS_MAX];
    size_t len = sizeof(address);

    ct_end_create(&link->end, side);
    ct_check(ct_ops->ep_address(link->end.ep, address, &len) == PSC_OK,
             "ep_address");
    ct_check(write(link->wire, address, len) == (ssize_t)len, "write");
}

static void link_connect(link_t *link)
{
    uint8_t address[PSC_ADDRESS_MAX];
    ssize_t len = read(link->wire, address, sizeof(address));

    ct_check(len > 0, "read");
    ct_check(
        ct_end_connect(&link->end,
                       link->first ? PSC_ROLE_CONNECTOR : PSC_ROLE_ACCEPTOR,
                       ct_token, address, (size_t)len) >= 0,
        "ep_connect");
}

/* Sends a message of either kind; it is no error if the peer has closed. */
static void link_send(link_t *link, unsigned number)
{
    char bytes[60];
    psc_iov_t iov = {bytes, sizeof(bytes)};
    uint64_t bits = number % RECEIVES;
    ct_send_t send;

    if (link->matches && number % 3) {
        ct_pattern_fill(bytes, sizeof(bytes), bits);
        ct_ops->tag_send(link->end.ep, bits, &iov, 1);
        return;
    }
    ct_send_try(&link->end, CT_BCOPY, 200, 1, &send);
    free(send.buffer);
}

/* Sends while it is still there to others; the second has them coming. */
static void link_close(link_t *link, link_t *other)
{
    int64_t deadline = ct_deadline();
    unsigned number = 0;

    receives_cancel(link);
    ct_ops->ep_close(link->end.ep);
    while (ct_ops->ep_stop(link->end.ep) == PSC_INPROGRESS) {
        ct_side_progress(link->end.side);
        if (other)
            link_send(other, number++);
        ct_check(psc_clock_now() < deadline, "the endpoint does not stop");
    }
    ct_end_abandon(&link->end);
}

static bool link_up(const link_t *link)
{
    return link->end.up || link->end.failed;
}

static void rank_round(link_t links[PEERS], unsigned random)
{
    int64_t deadline = ct_deadline();
    ct_side_t side;
    link_t *one = &links[random & 1], *two = &links[~random & 1];

    ct_side_open(&side);
    for (int i = 0; i < PEERS; i++)
        link_open(&links[i], &side);
    for (int i = 0; i < PEERS; i++)
        link_connect(&links[i]);
    while (!link_up(&links[0]) || !link_up(&links[1])) {
        ct_side_progress(&side);
        ct_check(psc_clock_now() < deadline, "not up");
    }
    for (int i = 0; i < PEERS; i++)
        receives_post(&links[i]);
    for (unsigned i = 0; i < MESSAGES; i++) {
        link_send(one, i);
        link_send(two, i);
        if (random >> (i % 16) & 2)
            ct_side_progress(&side);
    }
    link_close(one, two);
    for (unsigned i = 0; i < random % MESSAGES; i++)
        link_send(two, i);
    ct_side_progress(&side);
    link_close(two, NULL);
    ct_side_close(&side);
}

/* ---- three of them ---- */

static int wires[RANKS][RANKS];

static void wires_open(void)
{
    for (int i = 0; i < RANKS; i++)
        for (int j = i + 1; j < RANKS; j++) {
            int ends[2];

            ct_check(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0,
                     "socketpair");
            wires[i][j] = ends[0];
            wires[j][i] = ends[1];
        }
}

static int rounds_wanted(void)
{
    const char *wanted = getenv("PSCOMPY_TEST_OPENINGS");

    return wanted ? atoi(wanted) : ROUNDS;
}

/* Ends by exit, as every process does whose leaks are counted; or with its
 * parent, if another rank has failed. */
static void rank_run(int rank)
{
    link_t links[PEERS] = {0};
    unsigned random = (unsigned)rank + 1;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int i = 0; i < PEERS; i++) {
        int peer = (rank + 1 + i) % RANKS;

        links[i].wire = wires[rank][peer];
        links[i].first = rank < peer;
    }
    for (int i = rounds_wanted(); i > 0; i--) {
        random = random * 1103515245 + 12345;
        rank_round(links, random >> 8);
    }
    exit(0);
}

static void three_ranks(void)
{
    wires_open();
    for (int i = 0; i < RANKS; i++) {
        if (fork() == 0)
            rank_run(i);
    }
    for (int i = 0; i < RANKS; i++) {
        int status;

        ct_check(wait(&status) > 0, "wait");
        ct_check(WIFEXITED(status) && WEXITSTATUS(status) == 0,
                 "a rank ended with status %x", (unsigned)status);
    }
}

CASE(ranks_open_and_close)
{
    three_ranks();
}

CASE(ranks_open_and_close_as_the_reference_library_does)
{
    fault("unlink_used", 1);
    three_ranks();
}

/* A late event of a message finds memory that is still allocated. */
CASE(ranks_open_and_close_with_late_events)
{
    fault("unlink_used", 1);
    fault("reorder_events", MILLION / 20);
    set_number("MATCHING", 0);
    three_ranks();
}

/* ---- receives that are taken back ---- */

CASE(a_cancel_does_not_believe_the_interface)
{
    fault("unlink_used", 1);
    test_case_find("a_cancel_is_too_late_once_it_has_matched")->run();
}
