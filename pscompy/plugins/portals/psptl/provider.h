/* Providers of Portals 4: a library of this machine, and the software NI. Each
 * is a shared library that is opened at run time, and a table of its
 * functions, through which the driver calls them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "softni/pscompy_softni/api.h"
#include "psptl.h"

/* The functions that a library must have. PtlFini is not among them, because
 * some libraries cannot be started again after it. */
/* clang-format off */
#define PSPTL_FUNCTIONS(X)                                                     \
    X(PtlInit) X(PtlNIInit) X(PtlNIFini) X(PtlGetPhysId)                       \
    X(PtlPTAlloc) X(PtlPTFree) X(PtlPTEnable)                                  \
    X(PtlEQAlloc) X(PtlEQFree) X(PtlEQPoll)                                    \
    X(PtlMDBind) X(PtlMDRelease)                                               \
    X(PtlMEAppend) X(PtlMEUnlink) X(PtlMESearch) X(PtlPut) X(PtlGet)
/* clang-format on */

/* Extensions of the software NI (softni/api.h). For a library without them
 * these members of psptl_provider_t are NULL. */
#define PSPTL_EXTENSIONS(X)                                                    \
    X(softni_eq_fd)                                                            \
    X(softni_eq_arm) X(softni_cookie) X(softni_admit) X(softni_patience)

typedef struct psptl_provider {
    const char *name;
    void *library; /* handle of dlopen; NULL if not opened yet */
    /* The ACK of a put names the list (priority or overflow) that took the
     * message, and gives the length of the message for either list. */
    bool ack_names_list;
#define PSPTL_MEMBER(function) __typeof__(function) *function;
    PSPTL_FUNCTIONS(PSPTL_MEMBER)
    PSPTL_EXTENSIONS(PSPTL_MEMBER)
#undef PSPTL_MEMBER
} psptl_provider_t;

/* Opens and starts the provider of this choice, and returns it. AUTO means the
 * library of the machine if there is one, even if it has no interface, else the
 * software NI. Returns NULL and stores the reason if the provider cannot be
 * used. */
const psptl_provider_t *psptl_provider_start(psptl_choice_t choice,
                                             char *reason);

/* Stores the path of the software NI: the one that psptl_software_at() has set,
 * else libsoftni.so beside the file from which this code was loaded. */
void psptl_software_path(char *path, size_t room);
