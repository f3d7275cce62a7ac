/* Cases of shm alone: what a hostile or dying peer can do to a ring, a link
 * or the door, and what holds between two real processes. They look into the
 * transport's own structures, because a peer can, too. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"
#include "pscompy/plugins/shm/shm.h"

#define NOBODY 65534

static shm_ep_t *end_ep(ct_end_t *end)
{
    return (shm_ep_t *)end->ep;
}

static shm_iface_t *side_iface(ct_side_t *side)
{
    return (shm_iface_t *)side->iface;
}

/* Change one setting for the interfaces opened from now on. */
static void set(const char *name, int64_t number, const char *text)
{
    psc_setting_t *settings = (psc_setting_t *)(uintptr_t)ct_settings;

    for (uint32_t i = 0; i < ct_n_settings; i++) {
        if (strcmp(settings[i].name, name) == 0) {
            settings[i].number = number;
            settings[i].text = text;
            return;
        }
    }
    ct_check(false, "no setting %s", name);
}

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

/* ---- a second process ---- */

typedef struct other {
    pid_t pid;
    int link; /* SOCK_SEQPACKET */
} other_t;

static bool other_fork(other_t *other)
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

static int other_wait(other_t *other)
{
    int status;

    ct_check(waitpid(other->pid, &status, 0) == other->pid, "wait");
    close(other->link);
    return status;
}

static void other_check(other_t *other)
{
    int status = other_wait(other);

    ct_check(WIFEXITED(status) && WEXITSTATUS(status) == 0,
             "the other process ended with status 0x%x", status);
}

/* Open a side and an end and begin to connect them with the other process. */
static void other_begin(other_t *other, ct_pair_t *pair, psc_role_t role)
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

static void other_connect(other_t *other, ct_pair_t *pair)
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
        "exchange_bcopy",      "exchange_short",    "back_pressure_bcopy",
        "back_pressure_odd",   "kinds_keep_order",  "answer_inside_upcall",
    };

    for (size_t i = 0; i < sizeof(messages) / sizeof(messages[0]); i++)
        run_case(ct_message_cases, messages[i]);
    run_case(ct_event_cases, "wakes_for_room");
    run_case(ct_event_cases, "wakes_for_messages");
}

static void two_slots(void)
{
    set("RECVQ_SIZE", 2, "2");
    run_small();
}

static void smallest_ring(void)
{
    set("RECVQ_SIZE", 2, "2");
    set("BUFFER_SIZE", SHM_SLOT_MIN, "2k");
    run_small();
}

static void odd_slots(void)
{
    set("RECVQ_SIZE", 7, "7");
    set("BUFFER_SIZE", 3001, "3001");
    run_small();
    run_case(ct_message_cases, "landing_scattered");
}

/* Each side's ring is as its own settings say. */
static void rings_of_unlike_sizes(void)
{
    ct_pair_t pair;

    set("RECVQ_SIZE", 2, "2");
    ct_side_open(&pair.side_a);
    set("RECVQ_SIZE", 300, "300");
    ct_side_open(&pair.side_b);
    pair.a = &pair.side_a;
    pair.b = &pair.side_b;
    ct_end_create(&pair.x, pair.a);
    ct_end_create(&pair.y, pair.b);
    ct_pair_connect(&pair);
    ct_exchange(&pair, &pair.x, &pair.y, CT_BCOPY,
                ct_longest(pair.a, CT_BCOPY), 2);
    ct_exchange(&pair, &pair.y, &pair.x, CT_BCOPY,
                ct_longest(pair.b, CT_BCOPY), 2);
    ct_check(pair.x.begun > 0 && pair.y.begun == 0, "how they came");
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

static void absurd_settings_are_refused(void)
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

/* ---- garbage in the rings ---- */

static unsigned long fuzz_messages;
static char fuzz_sink[1000];
static psc_iov_t fuzz_iov = {fuzz_sink, sizeof(fuzz_sink)};

/* Reads every byte that it is given, so that AddressSanitizer sees it. */
static psc_status_t fuzz_am_recv(psc_ep_t *ep, const psc_am_t *am)
{
    const unsigned char *header = am->header, *payload = am->payload;
    unsigned sum = 0;

    (void)ep;
    for (size_t i = 0; i < am->header_len; i++)
        sum += header[i];
    for (size_t i = 0; i < am->len; i++)
        sum += payload[i];
    fuzz_messages += 1 + (sum == 1);
    return PSC_OK;
}

static void fuzz_am_begin(psc_ep_t *ep, uint8_t id, const void *header,
                          uint8_t header_len, uint64_t len, psc_dest_t *dest_p)
{
    (void)ep;
    (void)id;
    ct_check(len <= SHM_RING_MAX, "%llu bytes", (unsigned long long)len);
    memcpy(fuzz_sink, header, header_len);
    *dest_p = (psc_dest_t){&fuzz_iov, 1, NULL};
}

static void fuzz_am_end(psc_ep_t *ep, void *cookie)
{
    (void)ep;
    (void)cookie;
    fuzz_messages++;
}

typedef struct dice {
    uint64_t state;
} dice_t;

static uint64_t dice_roll(dice_t *dice)
{
    dice->state = dice->state * 6364136223846793005ull + 1442695040888963407ull;
    return dice->state >> 20 ^ dice->state << 40;
}

/* A word that is right in most respects. */
static uint64_t fuzz_word(dice_t *dice, const shm_ring_t *ring)
{
    uint64_t kind = dice_roll(dice) % (SHM_N_KINDS + 1);
    uint64_t header_len = dice_roll(dice) % (PSC_AM_HEADER_MAX + 2);
    uint64_t len = dice_roll(dice) % (shm_ring_room(ring) + 2);

    if (dice_roll(dice) % 8 == 0)
        return dice_roll(dice);
    return shm_word_pack((shm_kind_t)kind, (uint8_t)header_len, 0,
                         (uint32_t)len);
}

static void fuzz_scribble(dice_t *dice, const shm_ring_t *ring)
{
    uint32_t line = (uint32_t)(dice_roll(dice) % ring->n_lines);
    shm_control_t *control = ring->control;

    atomic_store(shm_ring_word(ring, line), fuzz_word(dice, ring));
    if (dice_roll(dice) % 64 == 0)
        atomic_store(&control->consumed, dice_roll(dice));
    if (dice_roll(dice) % 64 == 0)
        atomic_store(&control->sleeping, (uint32_t)dice_roll(dice));
    if (dice_roll(dice) % 64 == 0)
        atomic_store(&control->starving, (uint32_t)dice_roll(dice));
}

typedef struct scribbler {
    shm_ring_t there, back; /* y's two rings, as x has them mapped */
    uint64_t seed;
    _Atomic bool stop;
} scribbler_t;

static void *scribble(void *arg)
{
    scribbler_t *scribbler = arg;
    dice_t dice = {scribbler->seed};

    while (!atomic_load(&scribbler->stop)) {
        fuzz_scribble(&dice, &scribbler->there);
        fuzz_scribble(&dice, &scribbler->back);
    }
    return NULL;
}

/* One connection whose shared memory somebody overwrites while y works. */
static bool fuzz_round(ct_pair_t *pair, uint64_t seed)
{
    scribbler_t scribbler = {
        .there = end_ep(&pair->x)->tx.ring,
        .back = end_ep(&pair->x)->rx.ring,
        .seed = seed,
    };
    psc_iov_t iov = {fuzz_sink, sizeof(fuzz_sink)};
    pthread_t thread;

    ct_check(pthread_create(&thread, NULL, scribble, &scribbler) == 0,
             "thread");
    for (int i = 0; i < 3000 && !pair->y.failed; i++) {
        ct_side_progress(pair->b);
        (void)ct_ops->am_bcopy(pair->y.ep, 1, fuzz_sink, 8, &iov, 1);
        (void)ct_ops->arm(pair->b->iface);
    }
    atomic_store(&scribbler.stop, true);
    pthread_join(thread, NULL);
    ct_check(!pair->y.failed || pair->y.status == PSC_ERR_PROTOCOL, "%s: %s",
             psc_status_string(pair->y.status), pair->y.reason);
    return pair->y.failed;
}

static void garbage_in_rings(void)
{
    ct_pair_t first, pair;
    psc_upcalls_t up;
    unsigned failed = 0;

    ct_pair_open(&first);
    up = *first.b->iface->up;
    up.am_recv = fuzz_am_recv;
    up.am_begin = fuzz_am_begin;
    up.am_end = fuzz_am_end;
    first.b->iface->up = &up;
    ct_pair_connect(&first);
    for (uint64_t seed = 1; seed <= 200; seed++) {
        pair.a = first.a;
        pair.b = first.b;
        ct_end_create(&pair.x, pair.a);
        ct_end_create(&pair.y, pair.b);
        ct_pair_connect(&pair);
        failed += fuzz_round(&pair, seed);
        ct_end_destroy(&pair.y, pair.a);
        ct_end_abandon(&pair.x);
    }
    printf("%u connections of 200 failed, %lu absurd messages came\n", failed,
           fuzz_messages);
    ct_check(failed > 100 && fuzz_messages > 0, "the fuzz is too weak");
    ct_exchange(&first, &first.y, &first.x, CT_BCOPY, 100, 1);
    ct_pair_down(&first);
}

/* What the producer reads: a consumer that frees what it never had. */
static void consumer_lies(void)
{
    ct_pair_t pair;
    ct_send_t send;
    psc_status_t status;

    ct_pair_up(&pair);
    atomic_store(&end_ep(&pair.y)->rx.ring.control->consumed, 1ull << 40);
    do {
        status = ct_send_try(&pair.x, CT_BCOPY, 8000, 1, &send);
        free(send.buffer);
    } while (status == PSC_OK);
    ct_check(status == PSC_ERR_PROTOCOL, "%s", psc_status_string(status));
    ct_until(&pair, pair.x.failed && pair.y.failed);
    ct_check(pair.x.status == PSC_ERR_PROTOCOL, "%s", pair.x.reason);
    printf("here: %s\nthere: %s\n", pair.x.reason, pair.y.reason);
    ct_pair_down(&pair);
}

/* ---- rings that are none ---- */

static int plain_memfd(off_t size, unsigned seals)
{
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    ct_check(fd >= 0 && ftruncate(fd, size) == 0, "memfd");
    ct_check(fcntl(fd, F_ADD_SEALS, seals) == 0, "seals");
    return fd;
}

static void map_fails(int fd, const char *what)
{
    const shm_geometry_t geometry = {8192, 4};
    shm_ring_t ring = {0};

    ct_check(fd >= 0, "%s", what);
    ct_check(shm_ring_map(&ring, &geometry, fd) == PSC_ERR_PROTOCOL, "%s", what);
    ct_check(ring.control == NULL, "%s was mapped", what);
    close(fd);
}

static void only_sealed_rings_are_mapped(void)
{
    const unsigned all = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    const off_t right = 4 * 8192 + sysconf(_SC_PAGESIZE);

    map_fails(plain_memfd(right, F_SEAL_GROW | F_SEAL_SEAL), "may shrink");
    map_fails(plain_memfd(right, F_SEAL_SHRINK | F_SEAL_SEAL), "may grow");
    map_fails(plain_memfd(right, F_SEAL_SHRINK | F_SEAL_GROW), "unsealed");
    map_fails(plain_memfd(right - 1, all), "too short");
    map_fails(plain_memfd(right + 4096, all), "too long");
    map_fails(open("/dev/null", O_RDWR), "a device");
    map_fails(open("/proc/self/exe", O_RDONLY), "a file");
}

static void absurd_geometry(void)
{
    const shm_geometry_t absurd[] = {
        {0, 64},          {8192, 0},           {8192, 1}, {8191, 64},
        {64, 64},         {1u << 31, 1u << 31}, {UINT32_MAX - 63, UINT32_MAX},
        {1u << 28, 2},
    };

    for (size_t i = 0; i < sizeof(absurd) / sizeof(absurd[0]); i++)
        ct_check(!shm_geometry_valid(&absurd[i]), "%u x %u",
                 absurd[i].slot_size, absurd[i].slots);
}

/* ---- callers at the door ---- */

static int call(ct_side_t *side)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    strcpy(address.sun_path, side_iface(side)->door.path);
    ct_check(connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0,
             "connect: %s", strerror(errno));
    return fd;
}

/* Progress until the other end closes; takes what it said last. */
static void call_ends(ct_pair_t *pair, int fd, shm_packet_t *said)
{
    ssize_t n = -1;

    memset(said, 0, sizeof(*said));
    ct_until(pair, (n = recv(fd, said, sizeof(*said), MSG_DONTWAIT)) >= 0 ||
                       errno != EAGAIN);
    if (n > 0)
        ct_until(pair, (n = recv(fd, (char[1]){0}, 1, MSG_DONTWAIT)) >= 0 ||
                           errno != EAGAIN);
    ct_check(n <= 0, "still open");
    close(fd);
}

static void strangers_are_turned_away(void)
{
    ct_pair_t pair;
    shm_packet_t packet, said;
    dice_t dice = {7};

    ct_pair_up(&pair);
    for (size_t len = 1; len < 2 * sizeof(packet); len += 7) {
        char noise[2 * sizeof(packet)];
        int fd = call(pair.b);

        for (size_t i = 0; i < sizeof(noise); i++)
            noise[i] = (char)dice_roll(&dice);
        ct_check(send(fd, noise, len, 0) == (ssize_t)len, "send");
        call_ends(&pair, fd, &said);
    }
    for (uint16_t kind = 0; kind < 10; kind++) {
        int fd = call(pair.b);

        memset(&packet, 0, sizeof(packet));
        packet.magic = SHM_PACKET_MAGIC;
        packet.version = SHM_PACKET_VERSION;
        packet.kind = kind;
        packet.u.hello.target = end_ep(&pair.y)->id; /* up already */
        ct_check(send(fd, &packet, sizeof(packet), 0) > 0, "send");
        call_ends(&pair, fd, &said);
        if (kind == SHM_PACKET_HELLO)
            ct_check(said.kind == SHM_PACKET_REFUSAL, "not refused");
    }
    ct_exchange(&pair, &pair.x, &pair.y, CT_BCOPY, 10, 1);
    ct_pair_down(&pair);
}

/* Somebody who knows the endpoint but is not the peer. */
static void impostor_is_refused(void)
{
    ct_pair_t pair;
    shm_packet_t packet = {.magic = SHM_PACKET_MAGIC,
                           .version = SHM_PACKET_VERSION,
                           .kind = SHM_PACKET_HELLO};
    shm_packet_t said;
    uint8_t address[PSC_ADDRESS_MAX];
    size_t len = sizeof(address);
    int fd;

    ct_pair_open(&pair);
    ct_ops->ep_address(pair.x.ep, address, &len);
    ct_end_connect(&pair.y, PSC_ROLE_ACCEPTOR, ct_token, address, len);
    fd = call(pair.b);
    packet.u.hello.target = end_ep(&pair.y)->id;
    packet.u.hello.source = end_ep(&pair.x)->id + 1;
    ct_check(send(fd, &packet, sizeof(packet), 0) > 0, "send");
    call_ends(&pair, fd, &said);
    ct_check(said.kind == SHM_PACKET_REFUSAL, "not refused");
    ct_check(!pair.y.failed, "%s", pair.y.reason);
    len = sizeof(address);
    ct_ops->ep_address(pair.y.ep, address, &len);
    ct_end_connect(&pair.x, PSC_ROLE_CONNECTOR, ct_token, address, len);
    ct_until(&pair, pair.x.up && pair.y.up);
    ct_pair_down(&pair);
}

/* Silent callers are bounded in number and time, and harm nobody who has
 * called before them or calls after they are gone. */
static void silent_callers_are_bounded(void)
{
    ct_pair_t pair;
    shm_iface_t *iface;
    int fds[SHM_ANONYMOUS_MAX + 20];
    const unsigned n = sizeof(fds) / sizeof(fds[0]);

    ct_pair_open(&pair);
    iface = side_iface(pair.b);
    for (unsigned i = 0; i < n; i++)
        fds[i] = call(pair.b);
    ct_until(&pair, iface->door.paused);
    ct_check(iface->n_anonymous == SHM_ANONYMOUS_MAX, "%u callers",
             iface->n_anonymous);
    psc_list_for_each(link, &iface->links, shm_link_t, listed)
        link->since -= SHM_ANONYMOUS_NS; /* time passes */
    ct_until(&pair, !iface->door.paused && iface->n_anonymous == 20);
    ct_pair_connect(&pair);
    for (unsigned i = 0; i < n; i++)
        close(fds[i]);
    ct_until(&pair, iface->n_anonymous == 0);
    ct_check(iface->n_ticking == 0, "the timer ticks on");
    ct_pair_down(&pair);
}

/* ---- other users ---- */

static void other_user_calls(other_t *other, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    char folder[sizeof(address.sun_path)], byte;
    int inside;

    strcpy(folder, path);
    *strrchr(folder, '/') = '\0';
    inside = open(folder, O_PATH | O_CLOEXEC);
    ct_check(setresgid(NOBODY, NOBODY, NOBODY) == 0 &&
                 setresuid(NOBODY, NOBODY, NOBODY) == 0,
             "setuid");
    strcpy(address.sun_path, path);
    ct_check(connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0 &&
                 errno == EACCES,
             "entered the folder");
    /* Suppose a way into the folder had been found. */
    snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d%s",
             inside, strrchr(path, '/'));
    ct_check(connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0,
             "connect: %s", strerror(errno));
    ct_check(recv(fd, &byte, 1, 0) <= 0, "let in");
    ct_check(write(other->link, "x", 1) == 1, "link");
}

static void other_user_is_turned_away(void)
{
    ct_pair_t pair;
    other_t other;
    char byte;

    if (geteuid() != 0)
        ct_skip("only root can become another user");
    ct_pair_open(&pair);
    ct_check(chmod(side_iface(pair.b)->door.path, 0777) == 0, "chmod");
    if (other_fork(&other)) {
        other_user_calls(&other, side_iface(pair.b)->door.path);
        _exit(0);
    }
    ct_until(&pair, recv(other.link, &byte, 1, MSG_DONTWAIT) >= 0);
    other_check(&other);
    ct_pair_connect(&pair);
    ct_pair_down(&pair);
}

/* An address that tells of another user, or another machine. */
static void unreachable_is_told(void)
{
    ct_pair_t pair;
    uint8_t address[PSC_ADDRESS_MAX];
    size_t len = sizeof(address);

    ct_pair_open(&pair);
    ct_ops->ep_address(pair.y.ep, address, &len);
    address[4] ^= 1; /* the user */
    ct_end_connect(&pair.x, PSC_ROLE_CONNECTOR, ct_token, address, len);
    address[24] ^= 1; /* the boot id */
    ct_end_connect(&pair.y, PSC_ROLE_ACCEPTOR, ct_token, address, len);
    ct_until(&pair, pair.x.failed && pair.y.failed);
    ct_check(pair.x.status == PSC_ERR_CONNECT && strstr(pair.x.reason, "user"),
             "%s", pair.x.reason);
    ct_check(pair.y.status == PSC_ERR_CONNECT && strstr(pair.y.reason, "node"),
             "%s", pair.y.reason);
    ct_pair_down(&pair);
}

/* ---- cross-memory attach ---- */

typedef struct remote {
    psc_mem_t *mem;
    uint8_t packed[PSC_RKEY_MAX];
    size_t len;
} remote_t;

static void remote_make(ct_end_t *end, void *base, size_t len, remote_t *remote)
{
    remote->len = sizeof(remote->packed);
    ct_check(ct_ops->mem_register(end->side->iface, end->ep, base, len,
                                  &remote->mem) == PSC_OK,
             "mem_register");
    ct_check(ct_ops->rkey_pack(end->side->iface, remote->mem, remote->packed,
                               &remote->len) == PSC_OK,
             "rkey_pack");
}

static void open_unlike(ct_pair_t *pair, const char *here, const char *there)
{
    set("CMA", 0, here);
    ct_side_open(&pair->side_a);
    set("CMA", 0, there);
    ct_side_open(&pair->side_b);
    pair->a = &pair->side_a;
    pair->b = &pair->side_b;
    ct_end_create(&pair->x, pair->a);
    ct_end_create(&pair->y, pair->b);
}

static void cma_off_on_one_side(void)
{
    ct_pair_t pair;
    remote_t remote;
    psc_rkey_t *rkey;
    char bytes[8] = {0};

    open_unlike(&pair, "auto", "0");
    ct_check(ct_side_can(pair.a, PSC_CAP_PUT) &&
                 !ct_side_can(pair.b, PSC_CAP_PUT),
             "capabilities");
    ct_pair_connect(&pair);
    remote_make(&pair.y, bytes, sizeof(bytes), &remote);
    ct_check(ct_ops->rkey_unpack(pair.x.ep, remote.packed, remote.len,
                                 &rkey) == PSC_ERR_UNSUPPORTED,
             "an rkey without cross-memory attach");
    ct_ops->mem_deregister(pair.b->iface, remote.mem);
    ct_exchange(&pair, &pair.x, &pair.y, CT_BCOPY,
                ct_longest(pair.a, CT_BCOPY), 1);
    ct_pair_down(&pair);
}

static void cma_demanded_in_vain(void)
{
    ct_pair_t pair;
    uint8_t address[PSC_ADDRESS_MAX];
    size_t len = sizeof(address);

    open_unlike(&pair, "1", "0");
    ct_ops->ep_address(pair.x.ep, address, &len);
    ct_end_connect(&pair.y, PSC_ROLE_ACCEPTOR, ct_token, address, len);
    len = sizeof(address);
    ct_ops->ep_address(pair.y.ep, address, &len);
    ct_end_connect(&pair.x, PSC_ROLE_CONNECTOR, ct_token, address, len);
    ct_until(&pair, pair.x.failed && pair.y.failed);
    ct_check(strstr(pair.x.reason, "PSP_SHM_CMA"), "%s", pair.x.reason);
    ct_check(strstr(pair.y.reason, "PSP_SHM_CMA"), "%s", pair.y.reason);
    ct_pair_down(&pair);
}

/* A region whose second half is not there any more. */
static void put_into_a_hole(void)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), len = 64 * page;
    ct_pair_t pair;
    remote_t remote;
    psc_rkey_t *rkey;
    psc_comp_t comp = {NULL};
    char *region = mmap(NULL, len, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *local = calloc(1, len);

    ct_pair_up(&pair);
    remote_make(&pair.y, region, len, &remote);
    ct_check(ct_ops->rkey_unpack(pair.x.ep, remote.packed, remote.len,
                                 &rkey) == PSC_OK,
             "rkey_unpack");
    munmap(region + len / 2, len / 2);
    ct_check(ct_ops->put(pair.x.ep, local, len, NULL, rkey, 0, &comp) ==
                 PSC_ERR_TRANSPORT,
             "put into a hole");
    ct_check(ct_ops->get(pair.x.ep, local, len, NULL, rkey, 0, &comp) ==
                 PSC_ERR_TRANSPORT,
             "get from a hole");
    ct_check(ct_ops->put(pair.x.ep, local, len / 2, NULL, rkey, 0, &comp) ==
                 PSC_OK,
             "put beside the hole");
    ct_ops->rkey_release(pair.x.ep, rkey);
    ct_ops->mem_deregister(pair.b->iface, remote.mem);
    ct_exchange(&pair, &pair.x, &pair.y, CT_BCOPY, 10, 1);
    ct_pair_down(&pair);
    munmap(region, len / 2);
    free(local);
}

#define FAR_LEN (3u << 20)

static void far_child(other_t *other)
{
    static ct_pair_t pair;
    char *region = malloc(FAR_LEN);
    remote_t remote;
    char byte;

    memset(region, 1, FAR_LEN);
    other_connect(other, &pair);
    remote_make(&pair.x, region, FAR_LEN, &remote);
    ct_check(write(other->link, remote.packed, remote.len) > 0, "link");
    ct_check(read(other->link, &byte, 1) == 1, "link");
    ct_check(ct_pattern_check(region, FAR_LEN, 3), "what was put");
    ct_pattern_fill(region, FAR_LEN, 4);
    ct_check(write(other->link, "x", 1) == 1, "link");
    ct_check(read(other->link, &byte, 1) == 1, "link");
    raise(SIGKILL);
}

/* Between two processes; then the other one dies and no put goes on. */
static void put_and_get_between_processes(void)
{
    static ct_pair_t pair;
    other_t other;
    uint8_t packed[PSC_RKEY_MAX];
    char *local = malloc(FAR_LEN), byte;
    psc_comp_t comp = {NULL};
    psc_rkey_t *rkey;
    ssize_t n;

    if (other_fork(&other))
        far_child(&other);
    other_connect(&other, &pair);
    n = read(other.link, packed, sizeof(packed));
    ct_check(n > 0 && ct_ops->rkey_unpack(pair.x.ep, packed, (size_t)n,
                                          &rkey) == PSC_OK,
             "rkey_unpack");
    ct_pattern_fill(local, FAR_LEN, 3);
    for (size_t at = 0; at < FAR_LEN; at += SHM_PUT_MAX)
        ct_check(ct_ops->put(pair.x.ep, local + at, SHM_PUT_MAX, NULL, rkey,
                             at, &comp) == PSC_OK,
                 "put");
    ct_check(write(other.link, "x", 1) == 1, "link");
    ct_check(read(other.link, &byte, 1) == 1, "link");
    for (size_t at = 0; at < FAR_LEN; at += SHM_PUT_MAX)
        ct_check(ct_ops->get(pair.x.ep, local + at, SHM_PUT_MAX, NULL, rkey,
                             at, &comp) == PSC_OK,
                 "get");
    ct_check(ct_pattern_check(local, FAR_LEN, 4), "what was got");
    ct_check(write(other.link, "x", 1) == 1, "link");
    other_wait(&other);
    ct_check(ct_ops->put(pair.x.ep, local, 8, NULL, rkey, 0, &comp) ==
                 PSC_ERR_PEER_LOST,
             "a put to nobody");
    ct_until(&pair, pair.x.failed);
    ct_ops->rkey_release(pair.x.ep, rkey);
    free(local);
    ct_pair_down(&pair);
}

/* ---- processes in unlike circumstances ---- */

static void namespace_child(other_t *other)
{
    static ct_pair_t pair;

    other_connect(other, &pair);
    ct_check(!end_ep(&pair.x)->cma, "cross-memory attach to process 0");
    ct_until(&pair, pair.x.failed);
    _exit(pair.x.status == PSC_ERR_CLOSED ? 0 : 1);
}

/* The other process cannot even name us: messages go, put does not. */
static void other_pid_namespace(void)
{
    static ct_pair_t pair;
    other_t other;
    ct_send_t send;

    if (unshare(CLONE_NEWPID) != 0)
        ct_skip("no new pid name space: %s", strerror(errno));
    if (other_fork(&other))
        namespace_child(&other);
    other_connect(&other, &pair);
    ct_check(!end_ep(&pair.x)->cma, "cross-memory attach one way only");
    ct_send(&pair, &pair.x, CT_BCOPY, 100, 1, &send);
    ct_send_finish(&pair, &send);
    ct_pair_down(&pair);
    other_check(&other);
}

static void orphan_child(other_t *other)
{
    static ct_pair_t pair;

    other_connect(other, &pair);
    if (fork() == 0) {
        alarm(CT_PATIENCE_S / 2);
        pause(); /* holds copies of all descriptors */
        _exit(0);
    }
    raise(SIGKILL);
}

/* A child of the dead process has inherited its sockets. */
static void death_shows_despite_heirs(void)
{
    static ct_pair_t pair;
    other_t other;
    int64_t start;

    if (other_fork(&other))
        orphan_child(&other);
    other_connect(&other, &pair);
    other_wait(&other);
    start = psc_clock_now();
    ct_until(&pair, pair.x.failed);
    ct_check(pair.x.status == PSC_ERR_PEER_LOST, "%s", pair.x.reason);
    ct_check(psc_clock_now() - start < CT_PATIENCE_S / 4 * CT_SECOND,
             "noticed only when the heir ended");
    ct_pair_down(&pair);
}

/* ---- killed at every stage ---- */

static void stage_child(other_t *other, psc_role_t role, shm_stage_t stage)
{
    static ct_pair_t pair;

    other_begin(other, &pair, role);
    while (!pair.x.up) {
        psc_list_for_each(link, &side_iface(pair.a)->links, shm_link_t, listed)
            if (link->stage == stage)
                raise(SIGKILL);
        ct_side_progress(pair.a);
    }
    if (stage == SHM_STAGE_OPEN)
        raise(SIGKILL);
    _exit(0); /* this role never is in that stage */
}

/* True if the other process was in that stage. */
static bool stage_kill(psc_role_t role, shm_stage_t stage)
{
    static ct_pair_t pair;
    other_t other;
    int status;

    if (other_fork(&other))
        stage_child(&other, role, stage);
    other_begin(&other, &pair, role == PSC_ROLE_ACCEPTOR ? PSC_ROLE_CONNECTOR
                                                         : PSC_ROLE_ACCEPTOR);
    ct_until(&pair, pair.x.failed);
    status = other_wait(&other);
    printf("%s killed in %s: %s\n",
           role == PSC_ROLE_ACCEPTOR ? "acceptor" : "connector",
           shm_stage_name(stage), pair.x.reason);
    ct_pair_down(&pair);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

static void killed_in_every_stage(void)
{
    const unsigned expected[2] = {
        [PSC_ROLE_CONNECTOR] = 1u << SHM_STAGE_CHALLENGE |
                               1u << SHM_STAGE_OFFER |
                               1u << SHM_STAGE_VERDICT | 1u << SHM_STAGE_OPEN,
        [PSC_ROLE_ACCEPTOR] = 1u << SHM_STAGE_ANONYMOUS |
                              1u << SHM_STAGE_PROOF |
                              1u << SHM_STAGE_VERDICT | 1u << SHM_STAGE_OPEN,
    };

    for (psc_role_t role = PSC_ROLE_CONNECTOR; role <= PSC_ROLE_ACCEPTOR;
         role++) {
        unsigned seen = 0;

        for (unsigned stage = 0; stage < SHM_N_STAGES; stage++)
            if (stage_kill(role, (shm_stage_t)stage))
                seen |= 1u << stage;
        ct_check(seen == expected[role], "role %d was in stages 0x%x", role,
                 seen);
    }
}

/* ---- sleeping, between processes ---- */

#define NAPS 100000u

static void nap(ct_side_t *side)
{
    struct pollfd fd = {.fd = ct_ops->event_fd(side->iface), .events = POLLIN};

    if (ct_side_progress(side) == 0 && ct_ops->arm(side->iface) == PSC_OK)
        ct_check(poll(&fd, 1, CT_PATIENCE_S * 1000) == 1,
                 "a wake-up was lost");
}

static void nap_send(ct_end_t *end)
{
    ct_header_t header = {end->sent, 0, end->sent * 17};

    while (ct_ops->am_short(end->ep, CT_AM_ID, &header, sizeof(header), NULL,
                            0) == PSC_ERR_NO_RESOURCE)
        nap(end->side);
    end->sent++;
}

/* Some messages come at once, some while we fall asleep, some later. */
static void nap_ping_pong(ct_pair_t *pair, bool first)
{
    dice_t dice = {first};

    for (unsigned i = 1; i <= NAPS; i++) {
        if (first)
            nap_send(&pair->x);
        while (pair->x.received < i)
            nap(pair->a);
        for (volatile uint64_t wait = dice_roll(&dice) % 2000; wait > 0;)
            wait--;
        if (!first)
            nap_send(&pair->x);
    }
}

static void naps_between_processes(void)
{
    static ct_pair_t pair;
    other_t other;

    if (other_fork(&other)) {
        other_connect(&other, &pair);
        nap_ping_pong(&pair, false);
        ct_until(&pair, pair.x.failed);
        _exit(0);
    }
    other_connect(&other, &pair);
    nap_ping_pong(&pair, true);
    ct_pair_down(&pair);
    other_check(&other);
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

static void nothing_stays_on_disk(void)
{
    char base[] = "/tmp/shm-case-XXXXXX", folder[SHM_PATH_MAX];
    const struct timespec old[2] = {{1000, 0}, {1000, 0}};
    ct_side_t side;
    other_t other;
    struct stat status;

    ct_check(mkdtemp(base) != NULL, "mkdtemp");
    set("DIR", 0, base);
    ct_side_open(&side);
    strcpy(folder, side_iface(&side)->door.folder);
    ct_check(stat(folder, &status) == 0 && (status.st_mode & 0777) == 0700,
             "mode %o", status.st_mode);
    ct_side_close(&side);
    ct_check(folders_in(base) == 0, "close left its folder");
    if (other_fork(&other)) {
        ct_side_open(&side);
        strcpy(folder, side_iface(&side)->door.folder);
        ct_check(write(other.link, folder, sizeof(folder)) > 0, "link");
        raise(SIGKILL);
    }
    ct_check(read(other.link, folder, sizeof(folder)) > 0, "link");
    other_wait(&other);
    ct_check(folders_in(base) == 1, "nothing to sweep");
    ct_check(utimensat(AT_FDCWD, folder, old, 0) == 0, "utimensat");
    ct_side_open(&side); /* sweeps */
    ct_check(folders_in(base) == 1, "what a killed process left");
    ct_check(utimensat(AT_FDCWD, side_iface(&side)->door.folder, old, 0) == 0,
             "utimensat");
    ct_side_open(&(ct_side_t){0}); /* must not sweep the living one */
    ct_check(access(side_iface(&side)->door.path, F_OK) == 0, "swept alive");
    ct_side_close(&side);
}

const ct_case_t ct_own_cases[] = {
    {"two_slots", two_slots, 0, false},
    {"smallest_ring", smallest_ring, 0, false},
    {"odd_slots", odd_slots, 0, false},
    {"rings_of_unlike_sizes", rings_of_unlike_sizes, 0, false},
    {"absurd_settings_are_refused", absurd_settings_are_refused, 0, false},
    {"garbage_in_rings", garbage_in_rings, 0, false},
    {"consumer_lies", consumer_lies, 0, false},
    {"only_sealed_rings_are_mapped", only_sealed_rings_are_mapped, 0, false},
    {"absurd_geometry", absurd_geometry, 0, false},
    {"strangers_are_turned_away", strangers_are_turned_away, 0, false},
    {"impostor_is_refused", impostor_is_refused, 0, false},
    {"silent_callers_are_bounded", silent_callers_are_bounded, 0, false},
    {"other_user_is_turned_away", other_user_is_turned_away, 0, false},
    {"unreachable_is_told", unreachable_is_told, 0, false},
    {"cma_off_on_one_side", cma_off_on_one_side, PSC_CAP_PUT, false},
    {"cma_demanded_in_vain", cma_demanded_in_vain, PSC_CAP_PUT, false},
    {"put_into_a_hole", put_into_a_hole, PSC_CAP_PUT, false},
    {"put_and_get_between_processes", put_and_get_between_processes,
     PSC_CAP_PUT, false},
    {"other_pid_namespace", other_pid_namespace, 0, false},
    {"death_shows_despite_heirs", death_shows_despite_heirs, 0, false},
    {"killed_in_every_stage", killed_in_every_stage, 0, false},
    {"naps_between_processes", naps_between_processes, 0, false},
    {"nothing_stays_on_disk", nothing_stays_on_disk, 0, false},
    {NULL, NULL, 0, false},
};
