#include "harness.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static const setup_t usual = {.ni_options = PTL_NI_MATCHING | PTL_NI_PHYSICAL,
                              .eq_size = 1024};
setup_t setup = {.ni_options = PTL_NI_MATCHING | PTL_NI_PHYSICAL,
                 .eq_size = 1024};

void fail_at(const char *file, int line, const char *what, long long value)
{
    fprintf(stderr, "%s:%d: %s (%lld)\n", file, line, what, value);
    exit(1);
}

/* ---- the line between the two processes ---- */

static void write_all(int fd, const void *bytes, size_t n)
{
    check(write(fd, bytes, n) == (ssize_t)n);
}

static void read_all(int fd, void *bytes, size_t n)
{
    check(recv(fd, bytes, n, MSG_WAITALL) == (ssize_t)n);
}

void tell(const side_t *side, uint64_t value)
{
    write_all(side->line, &value, sizeof(value));
}

uint64_t told(const side_t *side)
{
    uint64_t value;

    read_all(side->line, &value, sizeof(value));
    return value;
}

void meet(const side_t *side)
{
    tell(side, 0x6d656574);
    same(told(side), 0x6d656574);
}

void meet_busily(const side_t *side)
{
    ptl_event_t event;
    char byte;

    tell(side, 0x6d656574);
    while (recv(side->line, &byte, 1, MSG_PEEK | MSG_DONTWAIT) != 1)
        same(PtlEQGet(side->spare, &event), PTL_EQ_EMPTY);
    same(told(side), 0x6d656574);
}

/* ---- sides ---- */

void open_side(side_t *side)
{
    ptl_md_t md = {.length = PTL_SIZE_MAX, .ct_handle = PTL_CT_NONE};

    same(psni_configure(&setup.settings), PTL_OK);
    same(PtlInit(), PTL_OK);
    same(PtlNIInit(PTL_IFACE_DEFAULT, setup.ni_options, PTL_PID_ANY, NULL,
                   &side->limits, &side->ni),
         PTL_OK);
    same(PtlEQAlloc(side->ni, setup.eq_size, &side->eq), PTL_OK);
    same(PtlEQAlloc(side->ni, 1, &side->spare), PTL_OK);
    same(
        PtlPTAlloc(side->ni, setup.pt_options, side->eq, PTL_PT_ANY, &side->pt),
        PTL_OK);
    md.eq_handle = side->eq;
    md.options = setup.md_options;
    same(PtlMDBind(side->ni, &md, &side->md), PTL_OK);
    same(PtlGetPhysId(side->ni, &side->me), PTL_OK);
}

void close_side(side_t *side)
{
    same(PtlNIFini(side->ni), PTL_OK);
    PtlFini();
}

void admit(side_t *side)
{
    uint8_t cookie[SOFTNI_COOKIE_BYTES];

    same(softni_cookie(side->ni, cookie), PTL_OK);
    write_all(side->line, &side->me, sizeof(side->me));
    write_all(side->line, cookie, sizeof(cookie));
    read_all(side->line, &side->peer, sizeof(side->peer));
    read_all(side->line, cookie, sizeof(cookie));
    if (!setup.strangers)
        same(softni_admit(side->ni, side->peer, cookie), PTL_OK);
}

static void run_side(side_t *side, void (*play)(side_t *))
{
    open_side(side);
    admit(side);
    play(side);
    close_side(side);
}

void kill_other(side_t *side)
{
    int status;

    check(kill(side->other, SIGKILL) == 0);
    check(waitpid(side->other, &status, 0) == side->other);
    side->other = 0;
}

void pair(void (*first)(side_t *), void (*second)(side_t *))
{
    side_t side = {0};
    int lines[2], status;

    check(socketpair(AF_UNIX, SOCK_STREAM, 0, lines) == 0);
    side.other = fork();
    check(side.other >= 0);
    side.first = side.other != 0;
    if (!side.first) /* it would keep the output open, and the test waiting */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    side.line = lines[side.first ? 0 : 1];
    close(lines[side.first ? 1 : 0]);
    run_side(&side, side.first ? first : second);
    close(side.line);
    if (!side.first)
        exit(0);
    if (side.other != 0) {
        check(waitpid(side.other, &status, 0) == side.other);
        same(status, 0);
    }
    setup = usual;
}

/* ---- events ---- */

ptl_event_t next_event(const side_t *side)
{
    ptl_event_t event;
    unsigned which;

    same(PtlEQPoll(&side->eq, 1, PATIENCE_NS / 1000000, &event, &which),
         PTL_OK);
    return event;
}

ptl_event_t expect(const side_t *side, ptl_event_kind_t type,
                   ptl_ni_fail_t fail)
{
    ptl_event_t event = next_event(side);

    same(event.type, type);
    same(event.ni_fail_type, fail);
    return event;
}

void expect_nothing(const side_t *side)
{
    ptl_event_t event;

    same(PtlEQGet(side->eq, &event), PTL_EQ_EMPTY);
}

/* ---- entries, puts, contents ---- */

ptl_me_t entry_for(void *start, size_t length, uint64_t bits)
{
    return (ptl_me_t){.start = start,
                      .length = length,
                      .ct_handle = PTL_CT_NONE,
                      .uid = PTL_UID_ANY,
                      .options = PTL_ME_OP_PUT | PTL_ME_USE_ONCE |
                                 PTL_ME_EVENT_LINK_DISABLE |
                                 PTL_ME_EVENT_UNLINK_DISABLE,
                      .match_id = {.phys = {PTL_NID_ANY, PTL_PID_ANY}},
                      .match_bits = bits};
}

ptl_handle_me_t append(const side_t *side, const ptl_me_t *me, ptl_list_t list,
                       void *user_ptr)
{
    ptl_handle_me_t handle;

    same(PtlMEAppend(side->ni, side->pt, me, list, user_ptr, &handle), PTL_OK);
    return handle;
}

void put(const side_t *side, const void *start, size_t length, uint64_t bits,
         uint64_t data, ptl_ack_req_t ack)
{
    same(PtlPut(side->md, (ptl_size_t)(uintptr_t)start, length, ack, side->peer,
                side->pt, bits, 0, NULL, data),
         PTL_OK);
}

void fill(void *buffer, size_t length, unsigned seed)
{
    uint8_t *bytes = buffer;

    for (size_t i = 0; i < length; i++)
        bytes[i] = (uint8_t)(i * 7 + (i >> 8) * 13 + seed);
}

bool filled(const void *buffer, size_t length, unsigned seed)
{
    const uint8_t *bytes = buffer;

    for (size_t i = 0; i < length; i++)
        if (bytes[i] != (uint8_t)(i * 7 + (i >> 8) * 13 + seed))
            return false;
    return true;
}

psni_counters_t counted(const side_t *side)
{
    psni_counters_t counters;

    same(psni_counters(side->ni, &counters), PTL_OK);
    return counters;
}
