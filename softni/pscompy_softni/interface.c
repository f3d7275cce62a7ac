/* One NI: its limits, opening and closing it, and the functions that return its
 * properties. */
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "nic.h"

/* nanoseconds that closing an NI waits for acknowledgements of the peers */
#define LINGER_NS 1000000000ll
#define MAX_OPS 65536u
#define MAX_MESSAGE ((ptl_size_t)1 << 30)

static const ptl_ni_limits_t most = {
    .max_entries = 1 << 18,
    .max_unexpected_headers = 1 << 16,
    .max_mds = 1 << 16,
    .max_cts = 1 << 12,
    .max_eqs = 1 << 12,
    .max_pt_index = PSNI_TABLES - 1,
    .max_iovecs = PSNI_PIECES,
    .max_list_size = 1 << 18,
    .max_msg_size = MAX_MESSAGE,
    .max_volatile_size = PSNI_VOLATILE,
};

static int psni_cap(int wanted, int limit)
{
    return wanted <= 0 || wanted > limit ? limit : wanted;
}

static ptl_size_t psni_cap_size(ptl_size_t wanted, ptl_size_t limit)
{
    return wanted == 0 || wanted > limit ? limit : wanted;
}

static void psni_interface_limit(psni_ni_t *ni, const ptl_ni_limits_t *desired)
{
    const psni_settings_t *settings = &ni->settings;
    ptl_ni_limits_t *limits = &ni->limits;
    ptl_ni_limits_t wanted = desired == NULL ? most : *desired;

    *limits = most;
    limits->max_entries = psni_cap(wanted.max_entries, most.max_entries);
    limits->max_mds = psni_cap(wanted.max_mds, most.max_mds);
    limits->max_cts = psni_cap(wanted.max_cts, most.max_cts);
    limits->max_eqs = psni_cap(wanted.max_eqs, most.max_eqs);
    limits->max_pt_index = psni_cap(wanted.max_pt_index, most.max_pt_index);
    limits->max_iovecs = psni_cap(wanted.max_iovecs, most.max_iovecs);
    limits->max_list_size = psni_cap(wanted.max_list_size, most.max_list_size);
    limits->max_unexpected_headers = psni_cap(
        (int)settings->max_headers,
        psni_cap(wanted.max_unexpected_headers, most.max_unexpected_headers));
    limits->max_msg_size =
        psni_cap_size(settings->max_message,
                      psni_cap_size(wanted.max_msg_size, most.max_msg_size));
    limits->max_volatile_size =
        psni_cap_size(wanted.max_volatile_size, limits->max_msg_size);
    if (limits->max_volatile_size > most.max_volatile_size)
        limits->max_volatile_size = most.max_volatile_size;
}

static int psni_interface_pools(psni_ni_t *ni)
{
    const ptl_ni_limits_t *limits = &ni->limits;
    const struct {
        psni_kind_t kind;
        size_t size;
        uint32_t limit;
    } pools[] = {
        {PSNI_KIND_EQ, sizeof(psni_eq_t), (uint32_t)limits->max_eqs},
        {PSNI_KIND_CT, sizeof(psni_ct_t), (uint32_t)limits->max_cts},
        {PSNI_KIND_MD, sizeof(psni_md_t), (uint32_t)limits->max_mds},
        {PSNI_KIND_ENTRY, sizeof(psni_entry_t), (uint32_t)limits->max_entries},
        {PSNI_KIND_OP, sizeof(psni_op_t), MAX_OPS},
        {PSNI_KIND_ANSWER, sizeof(psni_op_t), MAX_OPS},
    };
    int rc = PTL_OK;

    for (unsigned i = 0; i < sizeof(pools) / sizeof(pools[0]); i++)
        if (rc == PTL_OK)
            rc = psni_pool_open(&ni->pools[pools[i].kind], ni, pools[i].kind,
                                pools[i].size, pools[i].limit);
    return rc;
}

static bool psni_interface_random(psni_ni_t *ni)
{
    bool ok =
        getrandom(ni->secret, sizeof(ni->secret), 0) == sizeof(ni->secret);

    if (ni->settings.has_key)
        memcpy(ni->cookie, ni->settings.key, sizeof(ni->cookie));
    else
        ok = ok &&
             getrandom(ni->cookie, sizeof(ni->cookie), 0) == sizeof(ni->cookie);
    /* the generator xorshift needs a state other than 0 */
    ni->dice = ni->settings.seed * 2 + 1;
    return ok;
}

static void psni_interface_free(psni_ni_t *ni)
{
    for (unsigned kind = PSNI_KIND_EQ; kind < PSNI_KINDS; kind++)
        psni_pool_close(&ni->pools[kind]);
}

int psni_interface_open(psni_ni_t *ni, ptl_pid_t pid,
                        const ptl_ni_limits_t *desired)
{
    int rc;

    ni->deadline = PSNI_NEVER;
    ni->uid = (ptl_uid_t)geteuid();
    ni->faulty = psni_faults_used(&ni->settings);
    psc_list_init(&ni->busy);
    psc_list_init(&ni->held);
    psc_list_init(&ni->answering);
    psc_list_init(&ni->listening);
    psni_interface_limit(ni, desired);
    rc = psni_interface_random(ni) ? psni_interface_pools(ni) : PTL_FAIL;
    if (rc != PTL_OK)
        goto err_pools;
    rc = psni_wire_open(ni, pid);
    if (rc != PTL_OK)
        goto err_pools;
    rc = psni_thread_start(ni);
    if (rc != PTL_OK)
        goto err_wire;
    return PTL_OK;
err_wire:
    psni_wire_close(ni);
err_pools:
    psni_interface_free(ni);
    return rc;
}

/* ---- closing ---- */

static void psni_interface_linger(psni_ni_t *ni)
{
    int64_t until = psc_clock_now() + LINGER_NS;
    struct pollfd fd = {.fd = ni->socket, .events = POLLIN};

    psni_send_answers(ni);
    while (!psni_peers_quiet(ni) && psc_clock_now() < until)
        if (!psni_progress(ni))
            poll(&fd, 1, 1);
    psc_list_for_each(peer, &ni->busy, psni_peer_t, busy) {
        if (peer->owed_by != PSNI_NEVER)
            psni_send_ack(peer, 0);
    }
    psni_faults_close(ni);
}

void psni_interface_close(psni_ni_t *ni)
{
    psni_thread_stop(ni);
    psc_lock_acquire(&ni->lock);
    psni_interface_linger(ni);
    psni_peers_close(ni);
    for (unsigned i = 0; i < PSNI_TABLES; i++)
        if (ni->tables[i].used)
            psni_pt_close(ni, &ni->tables[i]);
    psni_pool_drain(&ni->pools[PSNI_KIND_EQ], psni_eq_close);
    psni_pool_drain(&ni->pools[PSNI_KIND_CT], psni_ct_close);
    psni_wire_close(ni);
    psni_interface_free(ni);
    psc_lock_release(&ni->lock);
}

/* ---- properties ---- */

/* Copies a member of the NI while it holds the lock of the NI. */
static int psni_interface_read(ptl_handle_ni_t ni_handle, size_t offset,
                               void *value, size_t len)
{
    psni_ni_t *ni;
    int rc = psni_enter(ni_handle, PSNI_KIND_NI, &ni);

    if (rc != PTL_OK)
        return rc;
    memcpy(value, (const char *)ni + offset, len);
    psni_leave(ni);
    return PTL_OK;
}

int PtlGetUid(ptl_handle_ni_t ni_handle, ptl_uid_t *uid)
{
    return psni_interface_read(ni_handle, offsetof(psni_ni_t, uid), uid,
                               sizeof(*uid));
}

int PtlGetPhysId(ptl_handle_ni_t ni_handle, ptl_process_t *id)
{
    return psni_interface_read(ni_handle, offsetof(psni_ni_t, id), id,
                               sizeof(*id));
}

/* Returns the physical id: this NI has no logical addressing. */
int PtlGetId(ptl_handle_ni_t ni_handle, ptl_process_t *id)
{
    return PtlGetPhysId(ni_handle, id);
}

int PtlNIStatus(ptl_handle_ni_t ni_handle, ptl_sr_index_t status_register,
                ptl_sr_value_t *status)
{
    psni_ni_t *ni;
    int rc = psni_enter(ni_handle, PSNI_KIND_NI, &ni);

    if (rc != PTL_OK)
        return rc;
    if ((unsigned)status_register > PTL_SR_OPERATION_VIOLATIONS)
        rc = PTL_ARG_INVALID;
    else
        *status = ni->registers[status_register];
    psni_leave(ni);
    return rc;
}

int softni_cookie(ptl_handle_ni_t ni_handle,
                  uint8_t cookie[SOFTNI_COOKIE_BYTES])
{
    return psni_interface_read(ni_handle, offsetof(psni_ni_t, cookie), cookie,
                               SOFTNI_COOKIE_BYTES);
}

int psni_counters(ptl_handle_ni_t ni_handle, psni_counters_t *counters)
{
    return psni_interface_read(ni_handle, offsetof(psni_ni_t, counters),
                               counters, sizeof(*counters));
}
