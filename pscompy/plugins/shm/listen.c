/* The listening socket: a Unix socket with a random name in a folder that only
 * this user can enter. (A socket in the abstract name space could be reached by
 * every user.) Folder and socket are removed when the interface closes. The
 * folder of a killed process is removed by the next interface that opens. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "pscompy/transport/kit/clock.h"
#include "pscompy/transport/kit/restart.h"
#include "inbox.h"

#define SHM_FOLDER "pscompy-"
#define SHM_BACKLOG 4096
#define SHM_SWEEP_AGE_S 60
#define SHM_ACCEPT_MAX 64 /* accepted sockets per pass of progress */

static bool shm_folder_stat(const char *path, uid_t uid, struct stat *status)
{
    return lstat(path, status) == 0 && S_ISDIR(status->st_mode) &&
           status->st_uid == uid && (status->st_mode & 077) == 0;
}

static bool shm_folder_private(const char *path, uid_t uid)
{
    struct stat status;

    return shm_folder_stat(path, uid, &status);
}

/* ---- folders of killed processes ---- */

/* Returns true if no process listens on the socket. A socket that refuses
 * connections has no process behind it, because a running process gives its
 * socket this name only after listen(). */
static bool shm_listener_deserted(const struct sockaddr_un *address)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool refused;

    if (fd < 0)
        return false;
    refused =
        connect(fd, (const struct sockaddr *)address, sizeof *address) != 0 &&
        errno == ECONNREFUSED;
    close(fd);
    return refused;
}

/* Returns true if the process that made this entry of a folder has ended. The
 * name of a node file leads into /proc, where a process that has ended has no
 * files. */
static bool shm_entry_deserted(const char *name,
                               const struct sockaddr_un *address)
{
    if (strncmp(name, SHM_NODE, strlen(SHM_NODE)) == 0)
        return access(address->sun_path, F_OK) != 0 && errno == ENOENT;
    return strncmp(name, SHM_LISTENER, strlen(SHM_LISTENER)) == 0 &&
           shm_listener_deserted(address);
}

/* Returns true if the folder is private and not recent. Recent folders are
 * skipped, so that hundreds of processes that start together do not connect to
 * each other's sockets. */
static bool shm_folder_old(const char *path, uid_t uid)
{
    struct stat status;

    return shm_folder_stat(path, uid, &status) &&
           time(NULL) - status.st_mtime > SHM_SWEEP_AGE_S;
}

static void shm_folder_sweep(const char *folder)
{
    DIR *entries = opendir(folder);
    struct dirent *entry;

    if (entries == NULL)
        return;
    while ((entry = readdir(entries)) != NULL) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        size_t room = sizeof address.sun_path;

        if ((size_t)snprintf(address.sun_path, room, "%s/%s", folder,
                             entry->d_name) < room &&
            shm_entry_deserted(entry->d_name, &address) &&
            unlink(address.sun_path) == 0)
            rmdir(folder);
    }
    closedir(entries);
}

static void shm_listener_sweep(const char *base, uid_t uid)
{
    DIR *entries = opendir(base);
    struct dirent *entry;
    char folder[PATH_MAX];

    if (entries == NULL)
        return;
    while ((entry = readdir(entries)) != NULL) {
        if (strncmp(entry->d_name, SHM_FOLDER, strlen(SHM_FOLDER)) == 0 &&
            (size_t)snprintf(folder, sizeof folder, "%s/%s", base,
                             entry->d_name) < sizeof folder &&
            shm_folder_old(folder, uid))
            shm_folder_sweep(folder);
    }
    closedir(entries);
}

/* ---- opening ---- */

/* Chooses the folder for sockets: `base` if it is set, else the user's run-time
 * folder, else the folder for temporary files. */
static void shm_listener_base(shm_iface_t *iface, const char *base, char *found,
                              size_t room)
{
    if (base[0] != '\0') {
        snprintf(found, room, "%s", base);
        return;
    }
    snprintf(found, room, "/run/user/%u", (unsigned)iface->uid);
    if (!shm_folder_private(found, iface->uid) || access(found, W_OK) != 0)
        snprintf(found, room, "%s", P_tmpdir);
}

/* Creates the private folder and two names in it: `temporary`, to which the
 * socket is bound, and listener->path, its later name, which is part of the
 * addresses of endpoints. */
static psc_status_t shm_listener_name(shm_iface_t *iface, const char *base,
                                      char *temporary, char *reason)
{
    shm_listener_t *listener = &iface->listener;
    size_t room = sizeof listener->folder;
    uint64_t number;

    if (base[0] != '/' ||
        (size_t)snprintf(listener->folder, room, "%s/" SHM_FOLDER "XXXXXX",
                         base) >= room) {
        snprintf(reason, PSC_REASON_MAX,
                 "the folder %.100s is not an absolute path or too long for a "
                 "socket; set PSP_SHM_DIR to another one",
                 base);
        listener->folder[0] = '\0';
        return PSC_ERR_INVALID;
    }
    if (shm_random(&number, sizeof number) != PSC_OK ||
        mkdtemp(listener->folder) == NULL) {
        snprintf(reason, PSC_REASON_MAX,
                 "no folder can be made in %.100s (%s); set PSP_SHM_DIR to "
                 "another one",
                 base, strerror(errno));
        listener->folder[0] = '\0';
        return PSC_ERR_TRANSPORT;
    }
    snprintf(temporary, sizeof listener->path, "%s/new", listener->folder);
    snprintf(listener->path, sizeof listener->path,
             "%s/" SHM_LISTENER "%016llx", listener->folder,
             (unsigned long long)number);
    return PSC_OK;
}

/* Creates the listening socket. It receives the name that peers use only after
 * listen(). */
static int shm_listener_listen(const shm_listener_t *listener,
                               const char *temporary)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -1;
    strcpy(address.sun_path, temporary);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
        listen(fd, SHM_BACKLOG) == 0 && rename(temporary, listener->path) == 0)
        return fd;
    close(fd);
    return -1;
}

/* ---- accepted sockets ---- */

/* Closes the oldest link whose peer has not named the endpoint that it wants,
 * to make room for a new socket; a legitimate peer names the endpoint at once.
 * Returns false if there is no such link. */
static bool shm_listener_push_out(shm_iface_t *iface)
{
    psc_list_for_each(sock, &iface->sockets, shm_socket_t, listed) {
        if (sock->state == SHM_SOCKET_ANONYMOUS) {
            shm_socket_close(sock);
            return true;
        }
    }
    return false;
}

static void shm_listener_pause(shm_iface_t *iface)
{
    if (iface->listener.paused)
        return;
    iface->listener.paused = true;
    shm_source_unwatch(&iface->listener.source);
    shm_timer_run(iface, +1);
}

/* Called by every tick of the timer. Watches the listening socket again if
 * accept() had failed. */
void shm_listener_resume(shm_iface_t *iface)
{
    if (!iface->listener.paused)
        return;
    iface->listener.paused = false;
    shm_timer_run(iface, -1);
    if (shm_source_watch(iface->peers.fd, &iface->listener.source) != PSC_OK)
        shm_listener_pause(iface);
}

static void shm_listener_admit(shm_iface_t *iface, int fd)
{
    shm_socket_t *sock = shm_socket_create(iface, fd);
    char reason[PSC_REASON_MAX];

    if (sock == NULL)
        return;
    if (shm_socket_identify(sock, reason) != PSC_OK) {
        psc_iface_log(&iface->super, 2, "a caller was turned away: %s", reason);
        shm_socket_close(sock);
        return;
    }
    sock->since = psc_clock_now();
    shm_socket_enter(sock, SHM_SOCKET_ANONYMOUS);
    /* the peer's first packet, the hello, may have arrived already */
    sock->socket.ready(&sock->socket, 0);
}

static void shm_listener_failed(shm_iface_t *iface, int error)
{
    if (error == EAGAIN || error == ECONNABORTED)
        return;
    if (!shm_socket_exhausted(error) || !shm_listener_push_out(iface))
        /* accept() is not retried in every pass of progress */
        shm_listener_pause(iface);
}

static void shm_listener_ready(shm_source_t *self, uint32_t events)
{
    shm_iface_t *iface = psc_container_of(self, shm_iface_t, listener.source);

    (void)events;
    for (int i = 0; i < SHM_ACCEPT_MAX; i++) {
        int fd = PSC_RESTART(
            accept4(self->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));

        if (fd < 0) {
            shm_listener_failed(iface, errno);
            return;
        }
        if (iface->n_anonymous >= SHM_ANONYMOUS_MAX)
            shm_listener_push_out(iface);
        shm_listener_admit(iface, fd);
    }
}

psc_status_t shm_listener_open(shm_iface_t *iface, const char *base,
                               char *reason)
{
    shm_listener_t *listener = &iface->listener;
    char found[PATH_MAX], temporary[sizeof listener->path];
    psc_status_t status;

    shm_listener_base(iface, base, found, sizeof found);
    shm_listener_sweep(found, iface->uid);
    status = shm_listener_name(iface, found, temporary, reason);
    if (status != PSC_OK)
        return status;
    listener->source.ready = shm_listener_ready;
    if (shm_folder_private(listener->folder, iface->uid))
        listener->source.fd = shm_listener_listen(listener, temporary);
    else
        errno = EACCES;
    if (listener->source.fd >= 0 &&
        shm_source_watch(iface->peers.fd, &listener->source) == PSC_OK)
        return PSC_OK;
    snprintf(reason, PSC_REASON_MAX,
             "no private socket can be made in %.100s (%s); set PSP_SHM_DIR "
             "to another folder",
             found, strerror(errno));
    unlink(temporary);
    return PSC_ERR_TRANSPORT;
}

/* ---- ranks of a job ---- */

/* Makes the job's folder, unless there is one, and locks it. Returns a
 * descriptor, which holds the lock, or -1. In a folder that cannot be locked,
 * ranks that join at the same time may make a file each, and connect over
 * links. */
static int shm_listener_lock(const shm_iface_t *iface)
{
    const char *job = iface->listener.job;
    int fd = -1;

    if (mkdir(job, 0700) == 0 || errno == EEXIST)
        fd = PSC_RESTART(
            open(job, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (fd >= 0 && !shm_folder_private(job, iface->uid)) {
        close(fd);
        fd = -1;
    }
    if (fd >= 0)
        (void)PSC_RESTART(flock(fd, LOCK_EX));
    return fd;
}

/* Takes our inbox in the node file of the job (inbox.h). */
static bool shm_listener_join(shm_iface_t *iface)
{
    int lock = shm_listener_lock(iface);
    bool joined = lock >= 0 && shm_inbox_create(iface) == PSC_OK;

    if (lock >= 0)
        close(lock);
    return joined;
}

static void shm_listener_part(shm_iface_t *iface)
{
    if (iface->listener.job[0] == '\0')
        return;
    shm_node_part(iface);
    rmdir(iface->listener.job);
    iface->listener.job[0] = '\0';
}

psc_status_t shm_join(psc_iface_t *super, const uint8_t *key, int rank,
                      int *fd_p)
{
    shm_iface_t *iface = shm_iface(super);
    shm_listener_t *listener = &iface->listener;
    uint8_t hash[PSC_SIPHASH_SIZE];
    size_t base = strlen(listener->folder) - strlen(SHM_FOLDER "XXXXXX");

    iface->rank = rank;
    memcpy(iface->key, key, PSC_TOKEN_SIZE);
    psc_siphash(key, "folder", sizeof "folder", hash);
    if ((size_t)snprintf(listener->job, sizeof listener->job,
                         "%.*s" SHM_FOLDER "%016llx", (int)base,
                         listener->folder,
                         (unsigned long long)psc_siphash_load(hash)) >=
            sizeof listener->job ||
        !shm_listener_join(iface)) {
        shm_listener_part(iface);
        shm_inbox_close(iface);
        return PSC_ERR_UNSUPPORTED;
    }
    *fd_p = iface->peers.fd;
    return PSC_OK;
}

void shm_listener_close(shm_iface_t *iface)
{
    shm_listener_t *listener = &iface->listener;

    if (listener->paused)
        shm_timer_run(iface, -1);
    listener->paused = false;
    shm_source_close(&listener->source);
    shm_listener_part(iface);
    if (listener->folder[0] == '\0')
        return;
    unlink(listener->path);
    rmdir(listener->folder);
    listener->folder[0] = '\0';
}
