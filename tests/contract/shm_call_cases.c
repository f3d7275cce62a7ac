/* Cases of shm alone: ranks of a job that call each other by their numbers. */
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pscompy/plugins/shm/inbox.h"
#include "shm_cases.h"

/* Of this process only: other cases run beside this one. */
static uint8_t job_key[PSC_TOKEN_SIZE];

/* The end that answers calls, or NULL if they are refused. */
static ct_end_t *answering;

static psc_status_t call_arrives(psc_iface_t *iface, int rank)
{
    if (answering == NULL)
        return PSC_ERR_INVALID;
    ct_end_create(answering, iface->user);
    return iface->ops->ep_call(answering->ep, rank) < 0 ? PSC_ERR_CONNECT
                                                        : PSC_OK;
}

/* Two sides that have joined one job as ranks a and b. */
static void job_join(ct_pair_t *pair, int a, int b)
{
    static psc_upcalls_t up;
    int fd;

    ct_pair_open(pair);
    ct_end_abandon(&pair->x);
    ct_end_abandon(&pair->y);
    snprintf((char *)job_key, sizeof job_key, "job %d", (int)getpid());
    up = *pair->a->iface->up;
    up.rank_calls = call_arrives;
    pair->a->iface->up = pair->b->iface->up = &up;
    ct_check(ct_ops->join(pair->a->iface, job_key, a, &fd) == PSC_OK, "a");
    ct_check(ct_ops->join(pair->b->iface, job_key, b, &fd) == PSC_OK, "b");
    ct_check(fd >= 0, "no descriptor");
    pair->x.ep = pair->y.ep = NULL;
    answering = NULL;
}

static void job_open(ct_pair_t *pair)
{
    job_join(pair, 0, 1);
}

static void job_call(ct_end_t *end, ct_side_t *side, int rank)
{
    ct_end_create(end, side);
    ct_check(ct_ops->ep_call(end->ep, rank) == PSC_INPROGRESS, "ep_call");
}

static void job_talk(ct_pair_t *pair)
{
    ct_until(pair, pair->x.up && pair->y.ep != NULL && pair->y.up);
    ct_exchange(pair, &pair->x, &pair->y, CT_BCOPY, 100, 1);
    ct_exchange(pair, &pair->y, &pair->x, CT_BCOPY, 100, 1);
    ct_pair_down(pair);
}

CASE(a_rank_answers, .two_sides = true)
{
    ct_pair_t pair;
    int process;

    job_open(&pair);
    answering = &pair.y;
    job_call(&pair.x, pair.a, 1);
    ct_until(&pair, pair.x.up && pair.y.ep != NULL && pair.y.up);
    ct_check(!ct_ops->ep_called(pair.x.ep, &process), "the caller");
    ct_check(ct_ops->ep_called(pair.y.ep, &process), "the called one");
    ct_check(process == (int)getpid(), "process %d", process);
    job_talk(&pair);
}

/* One pass looks for the letters of a new connection. */
CASE(a_call_that_is_up_lets_sleep, .two_sides = true)
{
    ct_pair_t pair;
    unsigned refused = 0;

    job_open(&pair);
    answering = &pair.y;
    job_call(&pair.x, pair.a, 1);
    ct_until(&pair, pair.x.up && pair.y.ep != NULL && pair.y.up);
    while (ct_ops->arm(pair.a->iface) == PSC_ERR_NO_RESOURCE) {
        refused++;
        ct_side_progress(pair.a);
    }
    ct_check(refused <= 2, "arming was refused %u times", refused);
    ct_pair_down(&pair);
}

CASE(ranks_call_each_other, .two_sides = true)
{
    for (unsigned late = 0; late < 8; late++) {
        ct_pair_t pair;

        job_open(&pair);
        job_call(&pair.x, pair.a, 1);
        job_call(&pair.y, pair.b, 0);
        for (unsigned i = 0; i < late / 2; i++)
            ct_side_progress(late % 2 == 0 ? pair.a : pair.b);
        job_talk(&pair);
    }
}

CASE(a_call_is_refused, .two_sides = true)
{
    ct_pair_t pair;

    job_open(&pair);
    job_call(&pair.x, pair.a, 1);
    ct_until(&pair, pair.x.failed);
    ct_check(strstr(pair.x.reason, "refuses"), "%s", pair.x.reason);
    ct_pair_down(&pair);
}

/* Rank 0 does not call rank 1, because of its address. */
static void address_is_refused(ct_pair_t *pair, const char *why)
{
    answering = &pair->y;
    job_call(&pair->x, pair->a, 1);
    ct_until(pair, pair->x.failed);
    ct_check(strstr(pair->x.reason, why), "%s", pair->x.reason);
    ct_check(pair->y.ep == NULL, "it was called");
    ct_end_abandon(&pair->x);
}

CASE(a_call_without_the_key, .two_sides = true)
{
    ct_pair_t pair;

    job_open(&pair);
    side_iface(pair.a)->key[0]++;
    address_is_refused(&pair, "does not hold the key");
    ct_pair_down(&pair);
}

CASE(an_address_that_was_changed, .two_sides = true)
{
    ct_pair_t pair;
    uint8_t *address;

    job_open(&pair);
    address = (uint8_t *)&side_iface(pair.b)->inbox->address;
    for (size_t at = 0; at < sizeof(shm_segment_address_t); at++) {
        address[at] ^= 0x10;
        address_is_refused(&pair, "rank 1: ");
        address[at] ^= 0x10;
    }
    job_call(&pair.x, pair.a, 1);
    job_talk(&pair);
}

static void address_prove(shm_iface_t *iface)
{
    shm_segment_address_t *address = &iface->inbox->address;

    psc_siphash(iface->key, address, offsetof(shm_segment_address_t, proof),
                address->proof);
}

static void stranger_child(const other_t *other, const shm_iface_t *iface)
{
    int pipe = shm_pipe_open();
    char byte = 0;

    close(iface->node_fd);
    dup2(pipe, iface->doorbell.fd);
    dup2(pipe, iface->connect_doorbell.fd);
    ct_check(send(other->link, &byte, 1, 0) == 1, "link");
    ct_check(recv(other->link, &byte, 1, 0) == 1, "link");
    _exit(read(pipe, &byte, 1) < 0 ? 0 : 1);
}

/* The process of rank 1 has ended, and its id is that of another process, which
 * has pipes of its own under the same numbers. */
CASE(a_process_with_the_id_of_a_rank, .two_sides = true)
{
    ct_pair_t pair;
    shm_iface_t *iface;
    other_t other;
    char byte;

    job_open(&pair);
    iface = side_iface(pair.b);
    if (other_fork(&other))
        stranger_child(&other, iface);
    ct_check(recv(other.link, &byte, 1, 0) == 1, "link");
    iface->inbox->address.pid = other.pid;
    address_prove(iface);
    job_call(&pair.x, pair.a, 1);
    ct_check(send(other.link, &byte, 1, 0) == 1, "link");
    other_check(&other);
    ct_until(&pair, pair.x.failed);
    ct_check(strstr(pair.x.reason, "has ended"), "%s", pair.x.reason);
    ct_pair_down(&pair);
}

/* The segment address of a rank whose call is refused names a pipe that is not
 * its own. */
CASE(a_refusal_does_not_trust_the_address, .two_sides = true)
{
    ct_pair_t pair;
    shm_segment_address_t *address;
    int pipe = shm_pipe_open();
    char byte;

    job_open(&pair);
    address = &side_iface(pair.a)->inbox->address;
    address->connect_doorbell = pipe;
    job_call(&pair.x, pair.a, 1);
    ct_until(&pair,
             shm_call_state(&end_ep(&pair.x)->tx.ring) == SHM_CALL_REFUSED);
    ct_check(read(pipe, &byte, 1) < 0, "it was rung at");
    close(pipe);
    ct_pair_down(&pair);
}

CASE(a_rank_is_woken_by_the_first_that_calls, .two_sides = true)
{
    ct_pair_t pair;
    shm_iface_t *iface;
    char byte;

    job_open(&pair);
    iface = side_iface(pair.b);
    atomic_store(&iface->inbox->rung, 1);
    answering = &pair.y;
    job_call(&pair.x, pair.a, 1);
    ct_check(read(iface->connect_doorbell.fd, &byte, 1) < 0,
             "it was woken again");
    job_talk(&pair);
}

CASE(a_rank_that_has_looked_is_woken_again, .two_sides = true)
{
    ct_pair_t pair;
    shm_inbox_t *inbox;

    job_open(&pair);
    inbox = side_iface(pair.b)->inbox;
    answering = &pair.y;
    job_call(&pair.x, pair.a, 1);
    ct_check(atomic_load(&inbox->rung) == 1, "it was not woken");
    ct_until(&pair, atomic_load(&inbox->rung) == 0);
    job_talk(&pair);
}

/* Rank 1 answers only after rank 0 has given up. */
CASE(a_call_is_withdrawn, .two_sides = true)
{
    ct_pair_t pair;

    job_open(&pair);
    answering = &pair.y;
    job_call(&pair.x, pair.a, 1);
    ct_end_abandon(&pair.x);
    ct_until(&pair, pair.y.ep != NULL && pair.y.failed);
    ct_check(strstr(pair.y.reason, "refuses"), "%s", pair.y.reason);
    ct_end_abandon(&pair.y);
    ct_pair_down(&pair);
}

/* The rings of two ranks serve one connection. */
CASE(a_second_call_fails, .two_sides = true)
{
    ct_pair_t pair;

    job_open(&pair);
    answering = &pair.y;
    job_call(&pair.x, pair.a, 1);
    ct_until(&pair, pair.x.up && pair.y.ep != NULL && pair.y.up);
    ct_end_destroy(&pair.x, pair.b);
    ct_end_destroy(&pair.y, pair.a);
    job_call(&pair.x, pair.a, 1);
    ct_until(&pair, pair.x.failed);
    ct_check(strstr(pair.x.reason, "before"), "%s", pair.x.reason);
    ct_pair_down(&pair);
}

CASE(every_bit_is_set, .two_sides = true)
{
    ct_pair_t pair;
    shm_bitmap_t *bitmap;

    job_open(&pair);
    bitmap = &side_iface(pair.b)->inbox->bitmap;
    for (uint32_t bit = 0; bit < SHM_BITMAP_BITS; bit++)
        shm_bitmap_set(bitmap, bit);
    answering = NULL;
    for (unsigned i = 0; i < 2000; i++)
        ct_side_progress(pair.b);
    ct_check(atomic_load(&bitmap->groups) == 0, "bits are left");
    for (unsigned i = 1; i < SHM_NODE_BLOCKS; i++)
        ct_check(side_iface(pair.b)->blocks[i] == NULL, "block %u", i);
    answering = &pair.y;
    job_call(&pair.x, pair.a, 1);
    job_talk(&pair);
}

/* Another process has taken the rank, and has not left. */
CASE(a_rank_is_taken_once, .two_sides = true)
{
    ct_pair_t pair;
    ct_side_t third;
    int fd;

    job_open(&pair);
    ct_side_open(&third);
    ct_check(ct_ops->join(third.iface, job_key, 1, &fd) == PSC_ERR_UNSUPPORTED,
             "rank 1 was taken again");
    ct_side_close(&third);
    answering = &pair.y;
    job_call(&pair.x, pair.a, 1);
    job_talk(&pair);
}

CASE(a_rank_with_rings_of_another_size, .two_sides = true)
{
    ct_pair_t pair;
    ct_side_t third;
    shm_geometry_t *geometry;
    int fd;

    job_open(&pair);
    ct_side_open(&third);
    geometry = &side_iface(&third)->geometry;
    geometry->slots *= 2;
    ct_check(ct_ops->join(third.iface, job_key, 2, &fd) == PSC_ERR_UNSUPPORTED,
             "longer rings");
    geometry->slot_size /= 2;
    ct_check(ct_ops->join(third.iface, job_key, 2, &fd) == PSC_ERR_UNSUPPORTED,
             "shorter slots");
    ct_side_close(&third);
    ct_pair_down(&pair);
}

/* Ranks in the first and the last block of pairs, and between. */
CASE(ranks_far_apart, .two_sides = true)
{
    static const int ranks[][2] = {{1, 2},       {3, 2},    {1000, 4},
                                   {2047, 2048}, {0, 4095}, {4095, 4094}};

    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        ct_pair_t pair;

        job_join(&pair, ranks[i][0], ranks[i][1]);
        answering = &pair.y;
        job_call(&pair.x, pair.a, ranks[i][1]);
        job_talk(&pair);
    }
}

/* The first call to a rank of a block of pairs maps the block. */
CASE(a_call_without_address_space, .two_sides = true)
{
    ct_pair_t pair;
    struct rlimit was, none;
    psc_status_t status;

    job_open(&pair);
    ct_end_create(&pair.x, pair.a);
    ct_check(getrlimit(RLIMIT_AS, &was) == 0, "getrlimit");
    none = (struct rlimit){1, was.rlim_max};
    ct_check(setrlimit(RLIMIT_AS, &none) == 0, "setrlimit");
    status = ct_ops->ep_call(pair.x.ep, 1);
    ct_check(setrlimit(RLIMIT_AS, &was) == 0, "setrlimit");
    ct_check(status == PSC_ERR_NO_MEMORY, "status %d", status);
    answering = &pair.y;
    ct_check(ct_ops->ep_call(pair.x.ep, 1) == PSC_INPROGRESS, "ep_call");
    job_talk(&pair);
}

/* A rank that has closed is called no more, although its process runs. */
CASE(a_call_of_a_rank_that_has_left, .two_sides = true)
{
    ct_pair_t pair;

    job_open(&pair);
    ct_ops->close(pair.b->iface);
    ct_end_create(&pair.x, pair.a);
    ct_check(ct_ops->ep_call(pair.x.ep, 1) == PSC_ERR_CONNECT, "rank 1");
    ct_end_destroy(&pair.x, pair.b);
    pair.x.ep = NULL;
    ct_pair_down(&pair);
}

CASE(a_call_of_nobody, .two_sides = true)
{
    ct_pair_t pair;

    job_open(&pair);
    ct_end_create(&pair.x, pair.a);
    ct_check(ct_ops->ep_call(pair.x.ep, 2) == PSC_ERR_CONNECT, "rank 2");
    ct_check(ct_ops->ep_call(pair.x.ep, 0) == PSC_ERR_INVALID, "its own");
    ct_end_destroy(&pair.x, pair.b);
    pair.x.ep = NULL;
    ct_pair_down(&pair);
}
