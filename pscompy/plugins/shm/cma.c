/* Put and get by cross-memory attach: the kernel copies straight between the
 * buffers of two processes. The memory needs no registration with the kernel;
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
 * written. The owner breaks the seal and then reads `writing`. Each side has a
 * fence between its two steps, so either the writer finds the seal broken, or
 * the owner sees that it has to wait for the writer. */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "memory.h"
#include "pscompy/transport/kit/restart.h"

typedef ssize_t (*shm_cma_fn_t)(pid_t pid, const struct iovec *local,
                                unsigned long n_local,
                                const struct iovec *remote,
                                unsigned long n_remote, unsigned long flags);

static psc_status_t shm_cma_error(int error)
{
    return error == ESRCH ? PSC_ERR_PEER_LOST : PSC_ERR_TRANSPORT;
}

/* Copies all pieces between this process and another. The kernel may stop half
 * way at the end of a mapping; continuing from there either succeeds or returns
 * the error. */
static psc_status_t shm_cma_move(shm_cma_fn_t move, pid_t pid,
                                 struct iovec *local, struct iovec *remote,
                                 unsigned long n)
{
    while (n > 0) {
        ssize_t moved = 0;

        if (local->iov_len > 0) {
            moved = PSC_RESTART(move(pid, local, n, remote, n, 0));
            if (moved == 0)
                errno = EFAULT;
            if (moved <= 0)
                return shm_cma_error(errno);
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

/* The seal (number that is 0 once the memory is deregistered) is read after the
 * data, so the data was read while the seal was valid. If the memory cannot be
 * read, the cause may be a broken seal. */
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

/* Returns true if a letter (the last packet of a peer, see socket.c) shows that
 * the peer has closed the socket; the peer may then have freed its memory. */
static bool shm_socket_ended(const shm_socket_t *sock)
{
    uint32_t kind = shm_socket_letter(sock);

    return kind != 0 && kind != (SHM_LETTER | SHM_PACKET_GOODBYE);
}

/* Returns true if `pid` still denotes the peer. Process ids are reused, but
 * `pid` is the peer's as long as neither the socket nor the pidfd reports that
 * the peer has ended. The poll costs little compared with the copy. */
bool shm_cma_guarded(const shm_ep_t *ep)
{
    struct pollfd guards[2] = {
        {.fd = ep->sock->socket.fd, .events = POLLRDHUP},
        {.fd = ep->sock->process.fd, .events = POLLIN},
    };

    return PSC_RESTART(poll(guards, 2, 0)) == 0 && !shm_socket_ended(ep->sock);
}

psc_status_t shm_cma_write(shm_ep_t *ep, const void *buffer, size_t len,
                           uint64_t address)
{
    if (!shm_cma_guarded(ep))
        return PSC_ERR_PEER_LOST;
    return shm_cma_one(process_vm_writev, ep->pid, (void *)(uintptr_t)buffer,
                       address, len);
}

psc_status_t shm_cma_fetch(shm_ep_t *ep, void *buffer, size_t len,
                           uint64_t address)
{
    if (!shm_cma_guarded(ep))
        return PSC_ERR_PEER_LOST;
    return shm_cma_one(process_vm_readv, ep->pid, buffer, address, len);
}

psc_status_t shm_cma_put(shm_ep_t *ep, const void *buffer, size_t len,
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

const psc_mem_t *shm_mem_find(const shm_iface_t *iface, uint64_t seal_address,
                              uint64_t seal)
{
    const psc_mem_t *mem = iface->mems;

    while (mem && (uintptr_t)&mem->seal != seal_address)
        mem = mem->next;
    return mem && atomic_load(&mem->seal) == seal ? mem : NULL;
}

psc_status_t shm_cma_self(const shm_iface_t *iface, void *to, const void *from,
                          size_t len, const psc_rkey_t *rkey)
{
    if (shm_mem_find(iface, rkey->seal_address, rkey->seal) == NULL)
        return PSC_ERR_INVALID;
    memmove(to, from, len);
    return PSC_OK;
}

/* Tries process_vm_readv() and process_vm_writev() on this process. Returns
 * false if the kernel lacks them or a filter refuses them. */
bool shm_cma_available(void)
{
    uint64_t from = 1, to = 0;

    return shm_cma_one(process_vm_readv, getpid(), &to, (uintptr_t)&from,
                       sizeof to) == PSC_OK &&
           shm_cma_one(process_vm_writev, getpid(), &to, (uintptr_t)&from,
                       sizeof to) == PSC_OK;
}

bool shm_cma_reads(const shm_ep_t *ep, uint8_t mode, uint64_t probe,
                   const uint8_t *nonce)
{
    uint8_t seen[SHM_ID_SIZE] = {0};

    if (shm_ep_iface(ep)->cma == SHM_CMA_OFF || mode == SHM_CMA_OFF ||
        ep->pid <= 0)
        return false;
    return shm_cma_one(process_vm_readv, ep->pid, seen, probe, sizeof seen) ==
               PSC_OK &&
           memcmp(seen, nonce, sizeof seen) == 0;
}

/* Reads the peer's probe (random bytes), and then writes them to the peer's
 * echo. If the peer's process id belongs to another name space, or was reused,
 * the bytes differ. */
bool shm_cma_prove(shm_ep_t *ep, const shm_resources_t *resources)
{
    return shm_cma_reads(ep, resources->cma, resources->probe,
                         resources->nonce) &&
           shm_cma_one(process_vm_writev, ep->pid,
                       (void *)(uintptr_t)resources->nonce, resources->echo,
                       SHM_ID_SIZE) == PSC_OK;
}
