/* Put and get by cross-memory attach: the kernel copies straight between the
 * two processes' buffers. No memory needs registering; a remote key is an
 * address, a length, and the number of the process that it belongs to. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "shm.h"

struct psc_mem {
    uint64_t address, len;
};

struct psc_rkey {
    uint64_t address, len;
};

/* What travels. Both ends run on one machine, so the bytes are its own. */
typedef struct shm_packed_rkey {
    uint64_t address, len;
    uint8_t process[SHM_ID_SIZE];
} shm_packed_rkey_t;

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

/* The kernel may stop half way at the end of a mapping; going on from there
 * either works or tells the error. */
static psc_status_t shm_cma_move(shm_cma_fn_t move, pid_t pid, void *buffer,
                                 uint64_t address, size_t len)
{
    struct iovec local = {buffer, len};
    struct iovec remote = {(void *)(uintptr_t)address, len};

    while (local.iov_len > 0) {
        ssize_t n = move(pid, &local, 1, &remote, 1, 0);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return shm_cma_error(n < 0 ? errno : EFAULT);
        local.iov_base = (char *)local.iov_base + n;
        remote.iov_base = (char *)remote.iov_base + n;
        local.iov_len = remote.iov_len -= (size_t)n;
    }
    return PSC_OK;
}

/* Process ids are used again. Ours is still the peer's as long as its guard
 * is silent; asking costs little beside the copy. */
static bool shm_cma_guarded(const shm_ep_t *ep)
{
    struct pollfd guards[2] = {
        {.fd = ep->link->socket.fd, .events = POLLRDHUP},
        {.fd = ep->link->process.fd, .events = POLLIN},
    };

    return poll(guards, 2, 0) == 0;
}

static psc_status_t shm_cma(shm_ep_t *ep, shm_cma_fn_t move, void *buffer,
                            size_t len, const psc_rkey_t *rkey,
                            uint64_t offset)
{
    if (ep->state != SHM_EP_UP)
        return ep->status < 0 ? ep->status : PSC_ERR_INVALID;
    if (offset > rkey->len || len > rkey->len - offset || len > SHM_PUT_MAX)
        return PSC_ERR_INVALID;
    if (ep->self) {
        void *there = (void *)(uintptr_t)(rkey->address + offset);

        memmove(move == process_vm_writev ? there : buffer,
                move == process_vm_writev ? buffer : there, len);
        return PSC_OK;
    }
    if (!shm_cma_guarded(ep))
        return PSC_ERR_PEER_LOST;
    return shm_cma_move(move, ep->pid, buffer, rkey->address + offset, len);
}

psc_status_t shm_put(psc_ep_t *super, const void *buffer, size_t len,
                     psc_mem_t *mem, psc_rkey_t *rkey, uint64_t offset,
                     psc_comp_t *comp)
{
    (void)mem;
    (void)comp;
    return shm_cma(shm_ep(super), process_vm_writev, (void *)(uintptr_t)buffer,
                   len, rkey, offset);
}

psc_status_t shm_get(psc_ep_t *super, void *buffer, size_t len, psc_mem_t *mem,
                     psc_rkey_t *rkey, uint64_t offset, psc_comp_t *comp)
{
    (void)mem;
    (void)comp;
    return shm_cma(shm_ep(super), process_vm_readv, buffer, len, rkey, offset);
}

/* ---- does it work? ---- */

/* With ourselves: false if the kernel or a filter lacks the calls. */
bool shm_cma_available(void)
{
    uint64_t from = 1, to = 0;

    return shm_cma_move(process_vm_readv, getpid(), &to, (uintptr_t)&from,
                        sizeof to) == PSC_OK &&
           shm_cma_move(process_vm_writev, getpid(), &to, (uintptr_t)&from,
                        sizeof to) == PSC_OK;
}

/* Nothing is written before the probe has been read: a process id of another
 * name space, or one used again, shows there. */
bool shm_cma_prove(shm_ep_t *ep, const shm_offer_t *offer)
{
    uint8_t seen[SHM_ID_SIZE] = {0};

    if (shm_ep_iface(ep)->cma == SHM_CMA_OFF || !offer->cma || ep->pid <= 0)
        return false;
    return shm_cma_move(process_vm_readv, ep->pid, seen, offer->probe,
                        sizeof seen) == PSC_OK &&
           memcmp(seen, offer->nonce, sizeof seen) == 0 &&
           shm_cma_move(process_vm_writev, ep->pid, seen, offer->echo,
                        sizeof seen) == PSC_OK;
}

/* ---- keys ---- */

psc_status_t shm_mem_register(psc_iface_t *iface, psc_ep_t *ep, void *base,
                              size_t len, psc_mem_t **mem_p)
{
    psc_mem_t *mem = malloc(sizeof *mem);

    (void)iface;
    (void)ep;
    if (mem == NULL)
        return PSC_ERR_NO_MEMORY;
    *mem = (psc_mem_t){(uintptr_t)base, len};
    *mem_p = mem;
    return PSC_OK;
}

void shm_mem_deregister(psc_iface_t *iface, psc_mem_t *mem)
{
    (void)iface;
    free(mem);
}

psc_status_t shm_rkey_pack(psc_iface_t *iface, psc_mem_t *mem, uint8_t *packed,
                           size_t *len_p)
{
    shm_packed_rkey_t key = {.address = mem->address, .len = mem->len};

    if (*len_p < sizeof key)
        return PSC_ERR_INVALID;
    memcpy(key.process, shm_iface(iface)->process, SHM_ID_SIZE);
    memcpy(packed, &key, sizeof key);
    *len_p = sizeof key;
    return PSC_OK;
}

psc_status_t shm_rkey_unpack(psc_ep_t *super, const uint8_t *packed,
                             size_t len, psc_rkey_t **rkey_p)
{
    shm_ep_t *ep = shm_ep(super);
    shm_packed_rkey_t key;
    psc_rkey_t *rkey;

    if (!ep->cma)
        return PSC_ERR_UNSUPPORTED;
    if (len != sizeof key)
        return PSC_ERR_PROTOCOL;
    memcpy(&key, packed, sizeof key);
    if (memcmp(key.process, ep->peer.process, SHM_ID_SIZE) != 0 ||
        key.len > UINT64_MAX - key.address)
        return PSC_ERR_PROTOCOL;
    rkey = malloc(sizeof *rkey);
    if (rkey == NULL)
        return PSC_ERR_NO_MEMORY;
    *rkey = (psc_rkey_t){key.address, key.len};
    *rkey_p = rkey;
    return PSC_OK;
}

void shm_rkey_release(psc_ep_t *ep, psc_rkey_t *rkey)
{
    (void)ep;
    free(rkey);
}
