/* Datagrams of other programs, and of a peer that sends nonsense, all of which
 * the NI refuses. */
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include "harness.h"
#include "softni/pscompy_softni/nic.h"

static uint8_t mine[100000], theirs[100000];

/* ---- datagrams from other programs ---- */

static uint64_t random_word(void)
{
    static uint64_t state = 88172645463325252ull;

    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static void random_bytes(uint8_t *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++)
        bytes[i] = (uint8_t)random_word();
}

static void send_to(int fd, const side_t *side, const void *bytes, size_t n)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET,
        .sin_port = htons((uint16_t)side->peer.phys.pid),
        .sin_addr = {.s_addr = htonl(side->peer.phys.nid)}};

    (void)!sendto(fd, bytes, n, 0, (struct sockaddr *)&to, sizeof(to));
}

/* Sends random datagrams; half of them begin with a valid frame header. */
static void hostile_side(side_t *side)
{
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    uint8_t bytes[2048];

    check(fd >= 0);
    for (unsigned i = 0; i < 20000; i++) {
        size_t n = random_word() % (i % 50 == 0 ? sizeof(bytes) : 120);
        psni_head_t head = {.magic = PSNI_MAGIC,
                            .kind = (uint8_t)(random_word() % 5)};

        random_bytes(bytes, n);
        if (i % 2 == 0)
            memcpy(bytes, &head, n < 8 ? n : 8);
        send_to(fd, side, bytes, n);
    }
    close(fd);
    meet(side);
    /* frames of an admitted peer still arrive */
    put(side, mine, 8, 1, 0, PTL_ACK_REQ);
    expect(side, PTL_EVENT_ACK, PTL_NI_OK);
    meet(side);
}

static void beset_side(side_t *side)
{
    ptl_me_t me = entry_for(theirs, 8, 1);

    append(side, &me, PTL_PRIORITY_LIST, NULL);
    meet(side);
    expect(side, PTL_EVENT_PUT, PTL_NI_OK);
    meet(side);
    check(counted(side).frames_ignored > 0);
    expect_nothing(side);
}

CASE(hostile_datagrams)
{
    setup.md_options = PTL_MD_EVENT_SEND_DISABLE;
    pair(hostile_side, beset_side);
}

/* Sends well-formed greetings that are not signed with the cookie. */
static void hello_side(side_t *side)
{
    struct {
        psni_head_t head;
        psni_hello_t hello;
    } frame = {.head = {.magic = PSNI_MAGIC, .kind = PSNI_FRAME_HELLO}};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    uint8_t answer[100];

    check(fd >= 0);
    for (unsigned i = 0; i < 3000; i++) {
        frame.hello = (psni_hello_t){.own = i % 2,
                                     .up = i % 3 == 0,
                                     .token = random_word(),
                                     .echo = random_word(),
                                     .window = random_word()};
        random_bytes(frame.hello.proof, sizeof(frame.hello.proof));
        send_to(fd, side, &frame, sizeof(frame));
    }
    meet(side);
    /* The NI has sent no answer, not even an error. */
    same(recv(fd, answer, sizeof(answer), MSG_DONTWAIT), -1);
    close(fd);
}

static void greeted_side(side_t *side)
{
    ptl_event_t event;

    while (counted(side).frames_ignored == 0)
        same(PtlEQGet(side->eq, &event), PTL_EQ_EMPTY);
    while (counted(side).frames_ignored < counted(side).frames_received)
        same(PtlEQGet(side->eq, &event), PTL_EQ_EMPTY);
    meet(side);
    same(counted(side).frames_sent, 0);
}

CASE(hostile_hellos)
{
    pair(hello_side, greeted_side);
}

/* ---- a peer that holds a token and sends nonsense ---- */

static psni_peer_t *peer_of(const side_t *side, psni_ni_t **ni_p)
{
    psni_ni_t *ni;
    psni_peer_t *peer;

    same(psni_enter(side->ni, PSNI_KIND_NI, &ni), PTL_OK);
    peer = psni_peer_find(ni, side->peer);
    check(peer != NULL);
    *ni_p = ni;
    return peer;
}

static size_t nonsense(uint8_t *body, size_t room)
{
    psni_message_t message = {.verb = (uint8_t)(random_word() % 7),
                              .ack_req = (uint8_t)(random_word() % 5),
                              .pt_index = (uint32_t)(random_word() % 3),
                              .match_bits = random_word() % 3,
                              .id = random_word() % 100};
    static const uint64_t lengths[] = {
        0, 1, 50, 5000, UINT64_MAX, UINT64_MAX / 2, 70000};

    message.length = lengths[random_word() % 7];
    message.remote_offset = lengths[random_word() % 7];
    random_bytes(body, room);
    memcpy(body, &message, sizeof(message));
    if (random_word() % 8 == 0)
        memset(body + 8, 0, 8); /* an offset that may fit */
    return random_word() % room;
}

static void victim_side(side_t *side)
{
    ptl_me_t me = entry_for(theirs + 1000, 5000, 0);
    uint8_t *body = malloc(300);
    psni_ni_t *ni;
    ptl_event_t event;

    me.options = PTL_ME_OP_PUT | PTL_ME_OP_GET | PTL_ME_EVENT_LINK_DISABLE;
    append(side, &me, PTL_PRIORITY_LIST, NULL);
    me.match_bits = 1;
    me.options |= PTL_ME_MANAGE_LOCAL;
    append(side, &me, PTL_OVERFLOW_LIST, NULL);
    meet(side);
    expect(side, PTL_EVENT_PUT, PTL_NI_OK);
    memset(theirs, 0xaa, sizeof(theirs));
    for (unsigned i = 0; i < 20000; i++) {
        psni_peer_t *peer = peer_of(side, &ni);

        psni_target_take(peer, (unsigned)(random_word() % 9), body,
                         nonsense(body, 300));
        if (i % 16 == 0)
            psni_target_abort(peer);
        psni_leave(ni);
        while (PtlEQGet(side->eq, &event) != PTL_EQ_EMPTY)
            continue;
    }
    for (unsigned i = 0; i < 1000; i++)
        same(theirs[i], 0xaa);
    for (unsigned i = 6000; i < sizeof(theirs); i++)
        same(theirs[i], 0xaa);
    check(counted(side).frames_ignored > 0);
    free(body);
    meet(side);
}

/* Receives answers to operations that it never posted. */
static void accused_side(side_t *side)
{
    ptl_event_t event;

    meet(side);
    put(side, mine, 8, 0, 0, PTL_ACK_REQ);
    expect(side, PTL_EVENT_ACK, PTL_NI_OK);
    while (counted(side).frames_ignored == 0)
        same(PtlEQGet(side->eq, &event), PTL_EQ_EMPTY);
    meet(side);
    expect_nothing(side);
}

CASE(hostile_peer)
{
    setup.md_options = PTL_MD_EVENT_SEND_DISABLE;
    pair(accused_side, victim_side);
}
