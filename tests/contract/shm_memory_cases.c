/* Cases of shm alone: cross-memory attach, enabled and disabled. */
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shm_cases.h"

/* ---- cross-memory attach ---- */

void remote_make(ct_end_t *end, void *base, size_t len, remote_t *remote)
{
    remote->len = sizeof(remote->packed);
    ct_check(ct_ops->mem_register(end->side->iface, end->ep, base, len,
                                  &remote->mem) == PSC_OK,
             "mem_register");
    ct_check(ct_ops->rkey_pack(end->side->iface, remote->mem, remote->packed,
                               &remote->len) == PSC_OK,
             "rkey_pack");
}

psc_status_t get_ended(ct_pair_t *pair, psc_status_t status, ct_send_t *send)
{
    if (status != PSC_INPROGRESS)
        return status;
    ct_until(pair, send->done);
    return send->status;
}

static void open_unlike(ct_pair_t *pair, const char *here, const char *there)
{
    ct_set("CMA", 0, here);
    ct_side_open(&pair->side_a);
    ct_set("CMA", 0, there);
    ct_side_open(&pair->side_b);
    pair->a = &pair->side_a;
    pair->b = &pair->side_b;
    ct_end_create(&pair->x, pair->a);
    ct_end_create(&pair->y, pair->b);
}

CASE(cma_off_on_one_side, .caps = PSC_CAP_PUT)
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
    ct_check(ct_ops->rkey_unpack(pair.x.ep, remote.packed, remote.len, &rkey) ==
                 PSC_ERR_UNSUPPORTED,
             "an rkey without cross-memory attach");
    ct_ops->mem_deregister(pair.b->iface, remote.mem);
    ct_exchange(&pair, &pair.x, &pair.y, CT_BCOPY, ct_longest(pair.a, CT_BCOPY),
                1);
    ct_pair_down(&pair);
}

CASE(cma_demanded_in_vain, .caps = PSC_CAP_PUT)
{
    ct_pair_t pair;

    open_unlike(&pair, "1", "0");
    ct_pair_start(&pair);
    ct_until(&pair, pair.x.failed && pair.y.failed);
    ct_check(strstr(pair.x.reason, "PSP_SHM_CMA"), "%s", pair.x.reason);
    ct_check(strstr(pair.y.reason, "PSP_SHM_CMA"), "%s", pair.y.reason);
    ct_pair_down(&pair);
}

/* The second half of the region is unmapped. */
CASE(put_into_a_hole, .caps = PSC_CAP_PUT)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), len = 64 * page;
    ct_pair_t pair;
    remote_t remote;
    psc_rkey_t *rkey;
    psc_comp_t comp = {NULL};
    ct_send_t send;
    char *region = mmap(NULL, len, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *local = calloc(1, len);

    ct_pair_up(&pair);
    remote_make(&pair.y, region, len, &remote);
    ct_check(ct_ops->rkey_unpack(pair.x.ep, remote.packed, remote.len, &rkey) ==
                 PSC_OK,
             "rkey_unpack");
    munmap(region + len / 2, len / 2);
    ct_check(ct_ops->put(pair.x.ep, local, len, NULL, rkey, 0, &comp) ==
                 PSC_ERR_TRANSPORT,
             "put into a hole");
    ct_send_make(&send);
    ct_check(
        get_ended(&pair,
                  ct_ops->get(pair.x.ep, local, len, NULL, rkey, 0, &send.comp),
                  &send) == PSC_ERR_TRANSPORT,
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

/* Puts and gets between two processes; after the other one has died a put
 * fails. */
CASE(put_and_get_between_processes, .caps = PSC_CAP_PUT)
{
    static ct_pair_t pair;
    other_t other;
    uint8_t packed[PSC_RKEY_MAX];
    char *local = malloc(FAR_LEN), byte;
    psc_comp_t comp = {NULL};
    ct_send_t send;
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
        ct_check(ct_ops->put(pair.x.ep, local + at, SHM_PUT_MAX, NULL, rkey, at,
                             &comp) == PSC_OK,
                 "put");
    ct_check(write(other.link, "x", 1) == 1, "link");
    ct_check(read(other.link, &byte, 1) == 1, "link");
    ct_send_make(&send);
    ct_check(get_ended(&pair,
                       ct_ops->get(pair.x.ep, local, FAR_LEN, NULL, rkey, 0,
                                   &send.comp),
                       &send) == PSC_OK,
             "get");
    ct_check(ct_pattern_check(local, FAR_LEN, 4), "what was got");
    ct_check(write(other.link, "x", 1) == 1, "link");
    other_wait(&other);
    end_ep(&pair.x)->pid = getpid(); /* as if the process id were reused */
    ct_check(ct_ops->put(pair.x.ep, local, 8, NULL, rkey, 0, &comp) ==
                 PSC_ERR_PEER_LOST,
             "a put to nobody");
    ct_until(&pair, pair.x.failed);
    ct_ops->rkey_release(pair.x.ep, rkey);
    free(local);
    ct_pair_down(&pair);
}
