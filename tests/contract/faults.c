/* Cases: the peer is another process, and dies at some stage. */
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"

/* Behaviour of the child until it is killed. */
typedef enum fault_state {
    FAULT_SILENT,  /* never calls ep_connect */
    FAULT_IDLE,    /* up, then only progresses */
    FAULT_ASLEEP,  /* up, then does nothing */
    FAULT_SENDING, /* up, then floods */
    FAULT_HUGE     /* up, then sends one message that never ends */
} fault_state_t;

typedef struct fault {
    ct_pair_t pair; /* only side_a and x are used */
    pid_t child;
    int link; /* stream to the child */
} fault_t;

/* ---- the child ---- */

static void child_flood(ct_pair_t *pair, ct_kind_t kind, size_t len)
{
    ct_send_t send;

    for (;;) {
        if (ct_send_try(&pair->x, kind, len, 1, &send) == PSC_OK)
            free(send.buffer);
        ct_side_progress(pair->a);
    }
}

static void child_act(ct_pair_t *pair, fault_state_t stage)
{
    switch (stage) {
    case FAULT_SENDING:
        child_flood(pair, CT_BCOPY, 900);
        break;
    case FAULT_HUGE:
        if (ct_side_can(pair->a, PSC_CAP_AM_ZCOPY))
            child_flood(pair, CT_ZCOPY, 64 << 20);
        child_flood(pair, CT_BCOPY, ct_longest(pair->a, CT_BCOPY));
        break;
    case FAULT_ASLEEP:
        pause();
        break;
    default:
        for (;;)
            ct_side_progress(pair->a);
    }
}

static void child_run(int link, fault_state_t stage)
{
    static ct_pair_t pair;

    alarm(2 * CT_PATIENCE_S);
    ct_side_open(&pair.side_a);
    pair.a = pair.b = &pair.side_a;
    ct_end_create(&pair.x, pair.a);
    if (stage == FAULT_SILENT) {
        ct_end_ignore_over(&pair.x, link);
    } else {
        ct_end_join_over(&pair.x, link, PSC_ROLE_ACCEPTOR);
        ct_until(&pair, pair.x.up || pair.x.failed);
    }
    child_act(&pair, stage);
    _exit(1);
}

/* ---- the parent ---- */

static void fault_start(fault_t *fault, fault_state_t stage)
{
    int links[2];

    ct_check(socketpair(AF_UNIX, SOCK_STREAM, 0, links) == 0, "socketpair");
    fflush(NULL);
    fault->child = fork();
    ct_check(fault->child >= 0, "fork");
    if (fault->child == 0) {
        close(links[0]);
        child_run(links[1], stage);
    }
    close(links[1]);
    fault->link = links[0];
    ct_side_open(&fault->pair.side_a);
    fault->pair.a = fault->pair.b = &fault->pair.side_a;
    ct_end_create(&fault->pair.x, fault->pair.a);
    ct_end_join_over(&fault->pair.x, fault->link, PSC_ROLE_CONNECTOR);
}

static void fault_kill(fault_t *fault)
{
    ct_check(kill(fault->child, SIGKILL) == 0, "kill");
    ct_check(waitpid(fault->child, NULL, 0) == fault->child, "wait");
}

static void fault_expect(fault_t *fault)
{
    ct_end_t *end = &fault->pair.x;

    ct_until(&fault->pair, end->failed);
    ct_check(end->status == PSC_ERR_PEER_LOST ||
                 (!end->up && end->status == PSC_ERR_CONNECT),
             "%s", psc_status_string(end->status));
    printf("%s: %s\n", psc_status_string(end->status), end->reason);
}

static void fault_end(fault_t *fault)
{
    ct_end_destroy(&fault->pair.x, NULL);
    ct_side_close(fault->pair.a);
    close(fault->link);
}

static void killed(fault_state_t stage)
{
    static fault_t fault;
    ct_end_t *end = &fault.pair.x;

    fault_start(&fault, stage);
    ct_until(&fault.pair, end->up || end->failed);
    ct_check(end->up, "%s", end->reason);
    if (stage == FAULT_SENDING)
        ct_until(&fault.pair, end->received > 100);
    if (stage == FAULT_HUGE)
        ct_until(&fault.pair, end->received > 0 || end->in_body);
    fault_kill(&fault);
    fault_expect(&fault);
    fault_end(&fault);
}

CASE(killed_while_idle, .two_sides = true)
{
    killed(FAULT_IDLE);
}

CASE(killed_while_asleep, .two_sides = true)
{
    killed(FAULT_ASLEEP);
}

CASE(killed_while_sending, .two_sides = true)
{
    killed(FAULT_SENDING);
}

CASE(killed_in_a_message, .two_sides = true)
{
    killed(FAULT_HUGE);
}

/* Sends in flight end with an error, and only after ep_failed. */
CASE(killed_while_receiving, .caps = PSC_CAP_AM_ZCOPY, .two_sides = true)
{
    static fault_t fault;
    ct_end_t *end = &fault.pair.x;
    ct_send_t sends[3];
    size_t n = 0;

    fault_start(&fault, FAULT_ASLEEP);
    ct_until(&fault.pair, end->up || end->failed);
    ct_check(end->up, "%s", end->reason);
    while (n < 3 &&
           ct_send_try(end, CT_ZCOPY, 64 << 20, 1, &sends[n]) == PSC_INPROGRESS)
        n++;
    ct_check(n > 0, "nothing stays in flight");
    fault_kill(&fault);
    fault_expect(&fault);
    for (size_t i = 0; i < n; i++) {
        ct_until(&fault.pair, sends[i].done);
        ct_check(sends[i].status < 0, "a send to nobody succeeded");
        free(sends[i].buffer);
    }
    if (n < 3)
        free(sends[n].buffer);
    fault_end(&fault);
}

CASE(killed_before_connecting, .two_sides = true)
{
    static fault_t fault;

    fault_start(&fault, FAULT_SILENT);
    for (int i = 0; i < 200; i++)
        ct_side_progress(fault.pair.a);
    fault_kill(&fault);
    fault_expect(&fault);
    fault_end(&fault);
}

/* The death wakes a sleeper too. */
CASE(death_wakes, .caps = PSC_CAP_EVENT, .two_sides = true)
{
    static fault_t fault;
    ct_end_t *end = &fault.pair.x;

    fault_start(&fault, FAULT_ASLEEP);
    ct_until(&fault.pair, end->up || end->failed);
    while (ct_side_progress(fault.pair.a) > 0)
        ;
    fault_kill(&fault);
    while (!end->failed) {
        struct pollfd fd = {.fd = ct_ops->event_fd(fault.pair.a->iface),
                            .events = POLLIN};

        if (ct_ops->arm(fault.pair.a->iface) == PSC_OK)
            ct_check(poll(&fd, 1, CT_PATIENCE_S * 1000) == 1, "slept on");
        ct_side_progress(fault.pair.a);
    }
    fault_end(&fault);
}
