/* Registration, put and get. The owner of the memory helps with a large get
 * (copy.c), if this side asks it to. */
#include <stdlib.h>
#include <string.h>

#include "memory.h"

_Static_assert(sizeof(shm_packed_rkey_t) <= PSC_RKEY_MAX, "a longer rkey");

/* A large get of this process. */
typedef struct shm_get {
    shm_copy_t copy;
    psc_link_t listed; /* link in the list ep->unasked or iface->free_gets */
    shm_cursor_t alone; /* the cursor until the owner is asked to help */
    int slot; /* index in `gets` of the control page; -1: not asked */
} shm_get_t;

/* Body of a record of kind ASK: a request to help with a get. */
typedef struct shm_ask {
    uint32_t slot, turn;
    /* address in the memory of the record's receiver, and in the buffer of its
     * sender */
    uint64_t from, to;
    uint64_t len;
    uint64_t seal, seal_address;
} shm_ask_t;

_Static_assert(sizeof(shm_ask_t) + SHM_WORD_SIZE <= SHM_LINE, "one line");

/* ---- large gets ---- */

/* Asks the owner to help. If no slot or no room in the ring is free, the get
 * continues without help and asks again later. Returns true if the owner was
 * asked. */
static bool shm_get_ask(shm_ep_t *ep, shm_get_t *get)
{
    shm_copy_t *copy = &get->copy;
    int slot = __builtin_ffs((int)~ep->helped_gets) - 1;
    shm_ask_t ask = {.slot = (uint32_t)slot,
                     .from = copy->there,
                     .to = (uintptr_t)copy->here,
                     .len = copy->len,
                     .seal = copy->seal,
                     .seal_address = copy->seal_address};

    if (slot >= (int)SHM_HELPED_GETS || shm_am_reserve(ep, 1) != PSC_OK)
        return false;
    ep->helped_gets |= 1u << slot;
    get->slot = slot;
    copy->cursor = &ep->tx.ring.control->gets[slot].cursor;
    copy->turn = shm_cursor_turn(++ep->n_asked);
    ask.turn = (uint32_t)copy->turn;
    shm_cursor_begin(copy->cursor, copy->turn, copy->own);
    memcpy(shm_producer_begin(&ep->tx), &ask, sizeof ask);
    shm_am_publish(ep, shm_word_pack(SHM_KIND_ASK, 0, 0, sizeof ask),
                   sizeof ask);
    psc_list_remove(&get->listed);
    return true;
}

void shm_gets_ask(shm_ep_t *ep)
{
    psc_list_for_each(get, &ep->unasked, shm_get_t, listed)
        if (!shm_get_ask(ep, get))
            return;
}

static void shm_get_release(shm_ep_t *ep, shm_copy_t *copy, psc_status_t status)
{
    shm_get_t *get = psc_container_of(copy, shm_get_t, copy);

    (void)status;
    if (get->slot >= 0)
        ep->helped_gets &= ~(1u << get->slot);
    psc_list_remove(&get->listed);
    psc_list_push(&shm_ep_iface(ep)->free_gets, &get->listed);
}

static psc_status_t shm_get_start(shm_ep_t *ep, void *buffer, size_t len,
                                  const psc_rkey_t *rkey, uint64_t offset,
                                  psc_comp_t *comp)
{
    psc_link_t *link = psc_list_pop(&shm_ep_iface(ep)->free_gets);
    shm_get_t *get =
        link ? psc_container_of(link, shm_get_t, listed) : malloc(sizeof *get);

    if (get == NULL)
        return PSC_ERR_NO_MEMORY;
    *get = (shm_get_t){.copy = {.side = SHM_FRONT,
                                .here = buffer,
                                .there = rkey->address + offset,
                                .len = len,
                                .cursor = &get->alone,
                                .seal = rkey->seal,
                                .seal_address = rkey->seal_address,
                                .comp = comp,
                                .release = shm_get_release},
                       .slot = -1};
    shm_copy_begin(ep, &get->copy);
    psc_list_push(&ep->unasked, &get->listed);
    shm_gets_ask(ep);
    return PSC_INPROGRESS;
}

/* The previous get with the same cursor has completed. If the memory is not
 * registered any more, this side has cancelled the get, and the request is
 * ignored. */
bool shm_get_asked(shm_ep_t *ep, shm_word_t word, const uint8_t *bytes)
{
    const psc_mem_t *mem;
    shm_copy_t *help;
    shm_ask_t ask;

    if (word.len != sizeof ask || !ep->cma)
        return false;
    memcpy(&ask, bytes, sizeof ask);
    if (ask.slot >= SHM_HELPED_GETS || ask.len > SHM_GET_MAX)
        return false;
    help = &ep->helps[ask.slot];
    if (psc_link_listed(&help->listed))
        shm_copy_leave(ep, help, PSC_OK);
    mem = shm_mem_find(shm_ep_iface(ep), ask.seal_address, ask.seal);
    if (mem == NULL)
        return true;
    if (ask.from < mem->address || ask.from - mem->address > mem->len ||
        ask.len > mem->len - (ask.from - mem->address))
        return false;
    *help = (shm_copy_t){.side = SHM_BACK,
                         .here = (uint8_t *)(uintptr_t)ask.from,
                         .there = ask.to,
                         .len = ask.len,
                         .cursor = &ep->rx.ring.control->gets[ask.slot].cursor,
                         .turn = ask.turn,
                         .seal = ask.seal,
                         .seal_address = ask.seal_address};
    shm_copy_begin(ep, help);
    return true;
}

/* ---- put and get ---- */

static psc_status_t shm_cma_check(const shm_ep_t *ep, const psc_rkey_t *rkey,
                                  uint64_t offset, size_t len, size_t most)
{
    if (ep->state != SHM_EP_UP)
        return ep->status < 0 ? ep->status : PSC_ERR_INVALID;
    if (offset > rkey->len || len > rkey->len - offset || len > most)
        return PSC_ERR_INVALID;
    return PSC_OK;
}

psc_status_t shm_put(psc_ep_t *super, const void *buffer, size_t len,
                     psc_mem_t *mem, psc_rkey_t *rkey, uint64_t offset,
                     psc_comp_t *comp)
{
    shm_ep_t *ep = shm_ep(super);
    void *there = (void *)(uintptr_t)(rkey->address + offset);
    psc_status_t status = shm_cma_check(ep, rkey, offset, len, SHM_PUT_MAX);

    (void)mem;
    (void)comp;
    if (status != PSC_OK)
        return status;
    if (ep->self)
        return shm_cma_self(shm_ep_iface(ep), there, buffer, len, rkey);
    return shm_cma_put(ep, buffer, len, rkey, offset);
}

psc_status_t shm_get(psc_ep_t *super, void *buffer, size_t len, psc_mem_t *mem,
                     psc_rkey_t *rkey, uint64_t offset, psc_comp_t *comp)
{
    shm_ep_t *ep = shm_ep(super);
    void *there = (void *)(uintptr_t)(rkey->address + offset);
    psc_status_t status = shm_cma_check(ep, rkey, offset, len, SHM_GET_MAX);

    (void)mem;
    if (status != PSC_OK)
        return status;
    if (ep->self)
        return shm_cma_self(shm_ep_iface(ep), buffer, there, len, rkey);
    if (len < SHM_HELPED_MIN)
        return shm_cma_read(ep, buffer, len, rkey, offset);
    return shm_get_start(ep, buffer, len, rkey, offset, comp);
}

/* ---- registration ---- */

static psc_mem_t *shm_mem_new(shm_iface_t *iface)
{
    psc_mem_t *mem = iface->free_mems;

    if (mem) {
        iface->free_mems = mem->next_free;
        return mem;
    }
    mem = malloc(sizeof *mem);
    if (mem) {
        mem->next = iface->mems;
        iface->mems = mem;
    }
    return mem;
}

psc_status_t shm_mem_register(psc_iface_t *super, psc_ep_t *ep, void *base,
                              size_t len, psc_mem_t **mem_p)
{
    shm_iface_t *iface = shm_iface(super);
    psc_mem_t *mem = shm_mem_new(iface);

    (void)ep;
    if (mem == NULL)
        return PSC_ERR_NO_MEMORY;
    mem->address = (uintptr_t)base;
    mem->len = len;
    mem->revoked = 0;
    mem->awaited = false;
    /* The next seal is never 0, which marks deregistered memory. */
    iface->last_seal += iface->last_seal == UINT64_MAX ? 2 : 1;
    mem->fd = -1;
    atomic_store(&mem->seal, iface->last_seal);
    *mem_p = mem;
    return PSC_OK;
}

/* Returns true if a peer is writing a put with a key that has this seal. The
 * peer of an endpoint without a socket puts nothing any more. */
static bool shm_mem_written(const shm_iface_t *iface, uint64_t seal)
{
    for (uint32_t i = 0; i < iface->n_eps; i++) {
        const shm_ep_t *ep = iface->eps[i];

        if (ep->sock != NULL && ep->cma &&
            atomic_load(&ep->rx.ring.control->writing) == seal)
            return true;
    }
    return false;
}

/* Runs the timer while a peer is writing into revoked memory, so that the core
 * asks again, because a peer that has finished its put does not wake us. */
static void shm_mem_await(shm_iface_t *iface, psc_mem_t *mem, bool awaited)
{
    if (mem->awaited != awaited)
        shm_timer_run(iface, awaited ? +1 : -1);
    mem->awaited = awaited;
}

psc_status_t shm_mem_revoke(psc_iface_t *super, psc_mem_t *mem)
{
    shm_iface_t *iface = shm_iface(super);

    if (mem->revoked == 0)
        mem->revoked = atomic_exchange(&mem->seal, 0);
    atomic_thread_fence(memory_order_seq_cst);
    shm_mem_await(iface, mem, shm_mem_written(iface, mem->revoked));
    return mem->awaited ? PSC_INPROGRESS : PSC_OK;
}

void shm_mem_deregister(psc_iface_t *super, psc_mem_t *mem)
{
    shm_iface_t *iface = shm_iface(super);

    shm_mem_await(iface, mem, false);
    atomic_store(&mem->seal, 0);
    mem->next_free = iface->free_mems;
    iface->free_mems = mem;
}

uint32_t shm_iface_counters(const psc_iface_t *super, psc_counted_t *counters,
                            uint32_t room)
{
    const shm_iface_t *iface = (const shm_iface_t *)super;
    uint64_t all = 0, idle = 0;

    for (const psc_mem_t *mem = iface->mems; mem; mem = mem->next)
        all++;
    for (const psc_mem_t *mem = iface->free_mems; mem; mem = mem->next_free)
        idle++;
    if (room < 3)
        return 0;
    counters[0] = (psc_counted_t){"shm_rings", iface->n_eps};
    counters[1] = (psc_counted_t){"shm_rings_polled", iface->n_active};
    counters[2] = (psc_counted_t){"shm_registrations", all - idle};
    return 3;
}

void shm_mem_close(shm_iface_t *iface)
{
    psc_mem_t *mem = iface->mems, *next;
    psc_link_t *get;

    while ((get = psc_list_pop(&iface->free_gets)) != NULL)
        free(psc_container_of(get, shm_get_t, listed));
    for (; mem; mem = next) {
        next = mem->next;
        free(mem);
    }
}

/* ---- keys ---- */

/* Most keys are of memory without a descriptor; their packed form leaves out
 * `fd` and `id`. */
static size_t shm_packed_size(const shm_packed_rkey_t *key)
{
    return key->fd < 0 ? offsetof(shm_packed_rkey_t, fd) : sizeof *key;
}

psc_status_t shm_rkey_pack(psc_iface_t *iface, psc_mem_t *mem, uint8_t *packed,
                           size_t *len_p)
{
    shm_packed_rkey_t key = {.address = mem->address,
                             .len = mem->len,
                             .seal = atomic_load(&mem->seal),
                             .seal_address = (uintptr_t)&mem->seal,
                             .fd = mem->fd};
    size_t size = shm_packed_size(&key);

    if (*len_p < size)
        return PSC_ERR_INVALID;
    memcpy(key.process, shm_iface(iface)->process, SHM_ID_SIZE);
    memcpy(key.id, mem->id, SHM_ID_SIZE);
    memcpy(packed, &key, size);
    *len_p = size;
    return PSC_OK;
}

psc_status_t shm_rkey_unpack(psc_ep_t *super, const uint8_t *packed, size_t len,
                             psc_rkey_t **rkey_p)
{
    shm_ep_t *ep = shm_ep(super);
    shm_packed_rkey_t key = {.fd = -1};
    psc_rkey_t *rkey;

    if (!ep->cma)
        return PSC_ERR_UNSUPPORTED;
    if (len > sizeof key || len < offsetof(shm_packed_rkey_t, fd))
        return PSC_ERR_PROTOCOL;
    memcpy(&key, packed, len);
    if (len != shm_packed_size(&key) ||
        memcmp(key.process, ep->peer.process, SHM_ID_SIZE) != 0 ||
        key.len > UINT64_MAX - key.address)
        return PSC_ERR_PROTOCOL;
    rkey = malloc(sizeof *rkey);
    if (rkey == NULL)
        return PSC_ERR_NO_MEMORY;
    *rkey = (psc_rkey_t){key.address, key.len, key.seal, key.seal_address};
    *rkey_p = rkey;
    return PSC_OK;
}

void shm_rkey_release(psc_ep_t *ep, psc_rkey_t *rkey)
{
    (void)ep;
    free(rkey);
}
