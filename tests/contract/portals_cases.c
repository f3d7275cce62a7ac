/* Cases of portals alone: every variable in the counters, several connections,
 * and the order of messages that overtook each other. */
#include "portals_cases.h"

#include <ctype.h>
#include <dlfcn.h>

/* ---- the software NI ---- */

const psptl_provider_t *real_ni;

void ni_symbol(const char *name, void *function_p)
{
    char path[4096];
    void *library, *found;

    psptl_software_path(path, sizeof(path));
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    ct_check(library, "%s", dlerror());
    found = dlsym(library, name);
    ct_check(found, "%s", name);
    memcpy(function_p, &found, sizeof(found));
}

void fault(const char *name, uint64_t value)
{
    __typeof__(softni_fault_set) *set;

    ni_symbol("softni_fault_set", &set);
    ct_check(set(name, value) == PTL_OK, "%s", name);
}

psptl_provider_t *ni_wrap(const ct_side_t *side)
{
    static psptl_provider_t wrapped;
    psptl_device_t *device = portals_iface(side->iface)->device;

    real_ni = device->ni;
    wrapped = *real_ni;
    device->ni = &wrapped;
    return &wrapped;
}

/* Faults are passed as settings: FAULT_DROP=20000:2%. */
void ct_own_prepare(void)
{
    for (uint32_t i = 0; i < ct_n_settings; i++) {
        char name[64] = "";
        const char *from = ct_settings[i].name;

        if (strncmp(from, "FAULT_", 6) != 0)
            continue;
        for (size_t k = 0; from[6 + k] && k + 1 < sizeof(name); k++)
            name[k] = (char)tolower(from[6 + k]);
        fault(name, (uint64_t)ct_settings[i].number);
    }
}

/* ---- tools ---- */

void set_number(const char *name, int64_t number)
{
    ct_set(name, number, "");
}

uint64_t counter(const ct_side_t *side, psptl_counter_t which)
{
    const portals_iface_t *iface = portals_iface(side->iface);

    return psptl_device_counters(iface->device)[which];
}

/* The sum over both sides. */
uint64_t counted(const ct_pair_t *pair, psptl_counter_t which)
{
    return counter(pair->a, which) + counter(pair->b, which);
}

void print_counters(const ct_pair_t *pair)
{
    static const char *const names[] = {
#define NAME(name) #name,
        PSPTL_COUNTER_LIST(NAME)
#undef NAME
    };

    for (int i = 0; i < PSPTL_N_COUNTERS; i++)
        printf("%s %llu  ", names[i], (unsigned long long)counted(pair, i));
    putchar('\n');
}

void traffic(ct_pair_t *pair, uint64_t n)
{
    int64_t deadline = ct_deadline();
    ct_end_t *ends[] = {&pair->x, &pair->y};
    ct_send_t send;

    while (pair->x.received < n || pair->y.received < n) {
        for (int i = 0; i < 2; i++) {
            if (ends[i]->sent < n) {
                ct_send_try(ends[i], CT_BCOPY, ends[i]->sent % 1500, 1, &send);
                free(send.buffer);
            }
        }
        ct_pair_progress(pair);
        ct_check(!pair->x.failed && !pair->y.failed, "%s%s", pair->x.reason,
                 pair->y.reason);
        ct_check(psc_clock_now() < deadline, "%llu and %llu of %llu came",
                 (unsigned long long)pair->x.received,
                 (unsigned long long)pair->y.received, (unsigned long long)n);
    }
}

/* Sends messages until there is no room, while the peer makes no progress.
 * Returns their number. */
static uint64_t room_of(ct_pair_t *pair)
{
    ct_send_t send = {0};
    psc_status_t status;

    do {
        status = ct_send_try(&pair->x, CT_BCOPY, 10, 1, &send);
        free(send.buffer);
    } while (status == PSC_OK);
    ct_check(status == PSC_ERR_NO_RESOURCE, "%s", psc_status_string(status));
    return pair->x.sent;
}

/* Like room_of(), while acknowledgements are processed: sends at least `least`
 * messages, and continues for some time. */
static uint64_t window_of(ct_pair_t *pair, uint64_t least)
{
    int64_t deadline = ct_deadline(), end = INT64_MAX;

    while (psc_clock_now() < end) {
        room_of(pair);
        ct_side_progress(pair->a);
        ct_check(psc_clock_now() < deadline, "only %llu messages",
                 (unsigned long long)pair->x.sent);
        if (end == INT64_MAX && pair->x.sent >= least)
            end = psc_clock_deadline(CT_SECOND / 5);
    }
    return pair->x.sent;
}

/* ---- settings ---- */

CASE(bad_settings_are_named)
{
    ct_set("INTERFACE", 0, "203.0.113.7");
    ct_side_refused("PSP_PORTALS_INTERFACE");
    ct_set("INTERFACE", 0, "");
    fault("max_message", 4096);
    ct_side_refused("PSP_PORTALS_BUFFER_SIZE");
    fault("max_message", 0);
    set_number("RECVQ_SIZE", 100);
    set_number("EQ_SIZE", 64);
    ct_side_refused("PSP_PORTALS_EQ_SIZE");
    set_number("EQ_SIZE", 1024);
    if (psptl_has_library())
        return;
    ct_set("PROVIDER", 0, "system");
    ct_side_refused("PSP_PORTALS_PROVIDER");
}

static uint32_t nid_of(const ct_side_t *side)
{
    return portals_iface(side->iface)->device->self.phys.nid;
}

/* Each session has the address that its variable sets. */
CASE(two_addresses_in_one_process)
{
    ct_side_t one, two, again;

    ct_side_open(&one);
    ct_set("INTERFACE", 0, "127.0.0.2");
    ct_side_open(&two);
    ct_side_open(&again);
    ct_check(nid_of(&one) == 0x7f000001, "%x", nid_of(&one));
    ct_check(nid_of(&two) == 0x7f000002, "%x", nid_of(&two));
    ct_check(nid_of(&again) == 0x7f000002, "%x", nid_of(&again));
    ct_side_close(&one);
    ct_side_close(&two);
    ct_side_close(&again);
    ct_set("INTERFACE", 0, "lo");
    ct_side_refused("PSP_PORTALS_INTERFACE=lo is neither");
}

#define SIDES 100

/* Each interface has three entries of the portal table. */
CASE(more_interfaces_than_the_table_has_entries_for)
{
    static ct_side_t sides[SIDES];
    int n = 1, room;

    ct_side_open(&sides[0]);
    room = portals_iface(sides[0].iface)->device->limits.max_pt_index + 1;
    ct_check(room / 3 <= SIDES, "%d entries", room);
    while (n < room / 3)
        ct_side_open(&sides[n++]);
    ct_side_refused("fewer sessions");
    while (n > 0)
        ct_side_close(&sides[--n]);
    ct_side_open(&sides[0]);
    ct_side_close(&sides[0]);
}

CASE(buffer_size_bounds_a_message)
{
    ct_side_t small, large;

    set_number("BUFFER_SIZE", 2048);
    ct_side_open(&small);
    set_number("BUFFER_SIZE", 65536);
    ct_side_open(&large);
    ct_check(large.attr.max_bcopy - small.attr.max_bcopy == 65536 - 2048,
             "%zu and %zu", small.attr.max_bcopy, large.attr.max_bcopy);
    ct_side_close(&small);
    ct_side_close(&large);
}

CASE(buffer_sizes_that_differ_are_refused)
{
    ct_pair_t pair;

    ct_side_open(&pair.side_a);
    set_number("BUFFER_SIZE", 2048);
    ct_side_open(&pair.side_b);
    pair.a = &pair.side_a;
    pair.b = &pair.side_b;
    ct_end_create(&pair.x, pair.a);
    ct_end_create(&pair.y, pair.b);
    ct_pair_start(&pair);
    ct_until(&pair, pair.x.failed && pair.y.failed);
    ct_check(strstr(pair.x.reason, "PSP_PORTALS_BUFFER_SIZE"), "%s",
             pair.x.reason);
    ct_pair_down(&pair);
}

CASE(send_queue_bounds_what_leaves)
{
    static const uint32_t sizes[] = {2, 5, 16};

    set_number("RECVQ_SIZE", 64);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        ct_pair_t pair;

        set_number("SENDQ_SIZE", sizes[i]);
        ct_pair_up(&pair);
        ct_until(&pair, ct_pair_progress(&pair) == 0);
        ct_check(room_of(&pair) == sizes[i], "%llu messages in a ring of %u",
                 (unsigned long long)pair.x.sent, sizes[i]);
        ct_check(counter(pair.a, PSPTL_COUNTER_ring_full) > 0, "ring_full");
        ct_pair_down(&pair);
    }
}

CASE(receive_queue_bounds_what_a_peer_takes)
{
    static const uint32_t sizes[] = {4, 7, 40};

    set_number("SENDQ_SIZE", 8);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        ct_pair_t pair;

        set_number("RECVQ_SIZE", sizes[i]);
        ct_pair_up(&pair);
        ct_until(&pair, ct_pair_progress(&pair) == 0);
        ct_check(window_of(&pair, sizes[i]) == sizes[i],
                 "%llu messages in a ring of %u",
                 (unsigned long long)pair.x.sent, sizes[i]);
        ct_until(&pair, pair.y.received == pair.x.sent);
        ct_check(counted(&pair, PSPTL_COUNTER_dropped) +
                         counted(&pair, PSPTL_COUNTER_disabled) ==
                     0,
                 "the window let a message be dropped");
        ct_pair_down(&pair);
    }
}

#define ENDS 8

/* Connects further pairs of ends between the two interfaces of the first
 * pair. */
void ends_up(ct_pair_t *pairs, int n)
{
    for (int i = 0; i < n; i++) {
        pairs[i].a = &pairs[0].side_a;
        pairs[i].b = &pairs[0].side_b;
        ct_end_create(&pairs[i].x, pairs[i].a);
        ct_end_create(&pairs[i].y, pairs[i].b);
        ct_pair_start(&pairs[i]);
    }
    for (int i = 0; i < n; i++)
        ct_pair_await(&pairs[i]);
}

void ends_down(ct_pair_t *pairs, int n)
{
    for (int i = 1; i < n; i++) {
        ct_end_destroy(&pairs[i].x, pairs[0].b);
        ct_end_destroy(&pairs[i].y, pairs[0].a);
    }
    ct_pair_down(&pairs[0]);
}

/* Sends as many messages as all send rings hold, while no receiver makes
 * progress. */
static void ends_fill(ct_pair_t *pairs)
{
    ct_send_t send;

    for (int i = 0; i < 16 * ENDS; i++) {
        ct_check(ct_send_try(&pairs[i % ENDS].x, CT_BCOPY, 100, 1, &send) ==
                     PSC_OK,
                 "message %d", i);
        free(send.buffer);
    }
}

/* Messages wait if the queue of acknowledgements has no room for them. */
CASE(event_queue_bounds_what_is_under_way)
{
    static ct_pair_t pairs[ENDS];

    set_number("EQ_SIZE", 64);
    ct_side_open(&pairs[0].side_a);
    ct_side_open(&pairs[0].side_b);
    ends_up(pairs, ENDS);
    ends_fill(pairs);
    ct_check(counter(pairs[0].a, PSPTL_COUNTER_event_room) > 0, "event_room");
    for (int i = 0; i < ENDS; i++)
        ct_until(&pairs[0], pairs[i].y.received == 16);
    ends_down(pairs, ENDS);
}

/* The queue of arrivals is full: the table entry is disabled, and enabled
 * again. */
CASE(full_event_queue_loses_nothing)
{
    static ct_pair_t pairs[ENDS];
    int64_t deadline = ct_deadline();

    ct_side_open(&pairs[0].side_a);
    set_number("EQ_SIZE", 64);
    ct_side_open(&pairs[0].side_b);
    ends_up(pairs, ENDS);
    ends_fill(pairs);
    while (counter(pairs[0].a, PSPTL_COUNTER_disabled) == 0) {
        ct_side_progress(pairs[0].a);
        ct_check(psc_clock_now() < deadline, "the queue is never full");
    }
    for (int i = 0; i < ENDS; i++)
        ct_until(&pairs[0], pairs[i].y.received == 16);
    ct_check(counter(pairs[0].b, PSPTL_COUNTER_enables) > 0, "enables");
    ends_down(pairs, ENDS);
}

/* ---- several connections ---- */

CASE(two_between_the_same_processes)
{
    ct_pair_t one, two = {0};
    ct_send_t send;

    ct_pair_up(&one);
    two.a = one.a;
    two.b = one.b;
    ct_end_create(&two.x, one.a);
    ct_end_create(&two.y, one.b);
    ct_pair_connect(&two);
    for (int i = 0; i < 1000; i++) {
        ct_pair_t *pair = i % 3 == 0 ? &two : &one;

        ct_send(&one, i % 2 ? &pair->x : &pair->y, CT_BCOPY, (size_t)i, 1,
                &send);
        ct_send_finish(&one, &send);
    }
    ct_until(&one,
             one.x.received == one.y.sent && one.y.received == one.x.sent &&
                 two.x.received == two.y.sent && two.y.received == two.x.sent);
    ct_check(two.x.received > 100 && one.y.received > 300, "both were used");
    ct_end_destroy(&two.x, one.b);
    ct_end_destroy(&two.y, one.a);
    ct_pair_down(&one);
}

#define CONNECTIONS 64

CASE(sixty_four_connections)
{
    static ct_pair_t pairs[CONNECTIONS];
    ct_send_t send;

    ct_side_open(&pairs[0].side_a);
    ct_side_open(&pairs[0].side_b);
    ends_up(pairs, CONNECTIONS);
    for (int i = 0; i < 20 * CONNECTIONS; i++) {
        ct_pair_t *pair = &pairs[i * 7 % CONNECTIONS];

        ct_send(&pairs[0], &pair->x, CT_BCOPY, (size_t)i, 1, &send);
        free(send.buffer);
    }
    for (int i = 0; i < CONNECTIONS; i++)
        ct_until(&pairs[0], pairs[i].y.received == 20);
    ends_down(pairs, CONNECTIONS);
}
