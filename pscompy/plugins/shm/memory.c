/* Put and get by cross-memory attach: the kernel copies straight between the
 * buffers of two processes. Such memory needs no registration with the kernel;
 * a remote key is an address, a length, and the id of the process that owns the
 * memory.
 *
 * Memory that was deregistered must not be touched any more, although the
 * kernel would allow it. Therefore a key also holds a seal, a number that is
 * used once, and the address of the seal in the owner's memory. The seal is
 * read there before a put, and after the data of a get. Another process that
 * was given the peer's process id has no such number at that address. The
 * memory of registrations is reused for registrations only, until the interface
 * is freed.
 *
 * A process can be stopped between reading the seal and writing the data.
 * Therefore the writer of a put stores the seal in `writing` of the ring's
 * control page before it reads the seal, and clears `writing` after the data is
 * written. The owner breaks the seal and then reads `writing`. With a fence
 * between the two steps on either side, either the writer finds the seal
 * broken, or the owner sees that it has to wait for the writer. */
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "memory.h"

_Static_assert(sizeof(shm_packed_rkey_t) <= PSC_RKEY_MAX, "a longer rkey");

/* ---- copying ---- */

typedef ssize_t (*shm_cma_fn_t)(pid_t pid, const struct iovec *local,
                                unsigned long n_local,
                                const struct iovec *remote,
                                unsigned long n_remote, unsigned long flags);

static psc_status_t shm_cma_error(int error)
{
    return error == ESRCH ? PSC_ERR_PEER_LOST : PSC_ERR_TRANSPORT;
}

/* The kernel may stop half way at the end of a mapping; continuing from there
 * either succeeds or returns the error. */
static psc_status_t shm_cma_move(shm_cma_fn_t move, pid_t pid,
                                 struct iovec *local, struct iovec *remote,
                                 unsigned long n)
{
    while (n > 0) {
        ssize_t moved = 0;

        if (local->iov_len > 0) {
            moved = move(pid, local, n, remote, n, 0);
            if (moved < 0 && errno == EINTR)
                continue;
            if (moved <= 0)
                return shm_cma_error(moved < 0 ? errno : EFAULT);
        }
        while (n > 0 && (size_t)moved >= local->iov_len) {
            moved -= (ssize_t)local->iov_len;
            local++, remote++, n--;
        }
        if (moved == 0)
            continue;
        local->iov_base = (char *)local->iov_base + moved;
        remote->iov_base = (char *)remote->iov_base + moved;
        local->iov_len = remote->iov_len -= (size_t)moved;
    }
    return PSC_OK;
}

static struct iovec shm_cma_piece(uint64_t address, size_t len)
{
    return (struct iovec){(void *)(uintptr_t)address, len};
}

static psc_status_t shm_cma_one(shm_cma_fn_t move, pid_t pid, void *buffer,
                                uint64_t address, size_t len)
{
    struct iovec local = {buffer, len}, remote = shm_cma_piece(address, len);

    return shm_cma_move(move, pid, &local, &remote, 1);
}

static psc_status_t shm_cma_read_seal(const shm_ep_t *ep,
                                      const psc_rkey_t *rkey)
{
    uint64_t seal = 0;
    psc_status_t status = shm_cma_one(process_vm_readv, ep->pid, &seal,
                                      rkey->seal_address, sizeof seal);

    return status == PSC_OK && seal != rkey->seal ? PSC_ERR_INVALID : status;
}

/* The seal is read last, so the data before it was read while the seal was
 * valid. If the memory cannot be read, the cause may be a broken seal. */
psc_status_t shm_cma_read(shm_ep_t *ep, void *buffer, size_t len,
                          const psc_rkey_t *rkey, uint64_t offset)
{
    uint64_t seal = 0;
    struct iovec local[2] = {{buffer, len}, {&seal, sizeof seal}};
    struct iovec remote[2] = {
        shm_cma_piece(rkey->address + offset, len),
        shm_cma_piece(rkey->seal_address, sizeof seal),
    };
    psc_status_t status =
        shm_cma_move(process_vm_readv, ep->pid, local, remote, 2);

    if (status == PSC_OK)
        return seal == rkey->seal ? PSC_OK : PSC_ERR_INVALID;
    return shm_cma_read_seal(ep, rkey) == PSC_ERR_INVALID ? PSC_ERR_INVALID
                                                          : status;
}

/* Process ids are reused. `pid` is still the peer's as long as neither the
 * socket nor the pidfd reports its end; the poll costs little compared with the
 * copy. */
bool shm_cma_guarded(const shm_ep_t *ep)
{
    struct pollfd guards[2] = {
        {.fd = ep->link->socket.fd, .events = POLLRDHUP},
        {.fd = ep->link->process.fd, .events = POLLIN},
    };

    return poll(guards, 2, 0) == 0 && !shm_mail_says_end(ep->link);
}

psc_status_t shm_cma_write(shm_ep_t *ep, const void *buffer, size_t len,
                           uint64_t address)
{
    if (!shm_cma_guarded(ep))
        return PSC_ERR_PEER_LOST;
    return shm_cma_one(process_vm_writev, ep->pid, (void *)(uintptr_t)buffer,
                       address, len);
}

static psc_status_t shm_cma_put(shm_ep_t *ep, const void *buffer, size_t len,
                                const psc_rkey_t *rkey, uint64_t offset)
{
    _Atomic uint64_t *writing = &ep->tx.ring.control->writing;
    psc_status_t status = PSC_ERR_PEER_LOST;

    atomic_store_explicit(writing, rkey->seal, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
    if (shm_cma_guarded(ep))
        status = shm_cma_read_seal(ep, rkey);
    if (status == PSC_OK)
        status =
            shm_cma_one(process_vm_writev, ep->pid, (void *)(uintptr_t)buffer,
                        rkey->address + offset, len);
    atomic_store_explicit(writing, 0, memory_order_release);
    return status;
}

static psc_status_t shm_cma_self(const shm_iface_t *iface, void *to,
                                 const void *from, size_t len,
                                 const psc_rkey_t *rkey)
{
    if (shm_mem_find(iface, rkey->seal_address, rkey->seal) == NULL)
        return PSC_ERR_INVALID;
    memmove(to, from, len);
    return PSC_OK;
}

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
    if (len < SHM_SHARE_MIN)
        return shm_cma_read(ep, buffer, len, rkey, offset);
    return shm_share_start(ep, buffer, len, rkey, offset, comp);
}

/* ---- availability ---- */

/* Tries the calls on this process. Returns false if the kernel or a filter
 * lacks them. */
bool shm_cma_available(void)
{
    uint64_t from = 1, to = 0;

    return shm_cma_one(process_vm_readv, getpid(), &to, (uintptr_t)&from,
                       sizeof to) == PSC_OK &&
           shm_cma_one(process_vm_writev, getpid(), &to, (uintptr_t)&from,
                       sizeof to) == PSC_OK;
}

/* The probe is read before the echo is written. A process id of another name
 * space, or one that was reused, is detected by the read. */
bool shm_cma_prove(shm_ep_t *ep, const shm_offer_t *offer)
{
    uint8_t seen[SHM_ID_SIZE] = {0};

    if (shm_ep_iface(ep)->cma == SHM_CMA_OFF || !offer->cma || ep->pid <= 0)
        return false;
    return shm_cma_one(process_vm_readv, ep->pid, seen, offer->probe,
                       sizeof seen) == PSC_OK &&
           memcmp(seen, offer->nonce, sizeof seen) == 0 &&
           shm_cma_one(process_vm_writev, ep->pid, seen, offer->echo,
                       sizeof seen) == PSC_OK;
}

/* ---- keys ---- */

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

const psc_mem_t *shm_mem_find(const shm_iface_t *iface, uint64_t seal_address,
                              uint64_t seal)
{
    const psc_mem_t *mem = iface->mems;

    while (mem && (uintptr_t)&mem->seal != seal_address)
        mem = mem->next;
    return mem && atomic_load(&mem->seal) == seal ? mem : NULL;
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
    /* Seal 0 marks deregistered memory. */
    iface->last_seal += iface->last_seal == UINT64_MAX ? 2 : 1;
    mem->fd = -1;
    atomic_store(&mem->seal, iface->last_seal);
    *mem_p = mem;
    return PSC_OK;
}

/* True if a peer is writing a put under this seal. If an endpoint has no link
 * any more, its peer has stopped its puts or its process has ended. */
static bool shm_mem_written(const shm_iface_t *iface, uint64_t seal)
{
    for (uint32_t i = 0; i < iface->n_eps; i++) {
        const shm_ep_t *ep = iface->eps[i];

        if (ep->link != NULL && ep->cma &&
            atomic_load(&ep->rx.ring.control->writing) == seal)
            return true;
    }
    return false;
}

/* A peer that has finished its put does not ring the bell; the timer makes
 * progress check again. */
static void shm_mem_await(shm_iface_t *iface, psc_mem_t *mem, bool awaited)
{
    if (mem->awaited != awaited)
        shm_sleep_tick(iface, awaited ? +1 : -1);
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

void shm_mem_close(shm_iface_t *iface)
{
    psc_mem_t *mem = iface->mems, *next;

    for (; mem; mem = next) {
        next = mem->next;
        free(mem);
    }
}

/* Most keys are of memory without a descriptor and leave out `fd` and `id`. */
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
