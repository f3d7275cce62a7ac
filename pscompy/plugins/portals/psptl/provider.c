/* Opens the libraries of Portals 4 and fills the tables of their functions. */
#include "provider.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "pscompy/transport/kit/lock.h"

#define PROVIDER_PATH_MAX 4096u
#define PROVIDER_INSTEAD "(PSP_PORTALS_PROVIDER=software does without)"

static struct {
    psc_lock_t lock;
    psptl_provider_t system, software;
    char path[PROVIDER_PATH_MAX]; /* of the software NI; "": not set */
} providers = {
    .system = {.name = "system"},
    .software = {.name = "software", .ack_names_list = true},
};

void psptl_software_at(const char *path)
{
    snprintf(providers.path, sizeof(providers.path), "%s", path);
}

void psptl_software_path(char *path, size_t room)
{
    static const char name[] = "libsoftni.so";
    Dl_info own = {.dli_fname = ""};
    const char *slash;

    if (providers.path[0]) {
        snprintf(path, room, "%s", providers.path);
        return;
    }
    dladdr(&providers, &own);
    slash = strrchr(own.dli_fname, '/');
    snprintf(path, room, "%.*s%s", slash ? (int)(slash + 1 - own.dli_fname) : 0,
             own.dli_fname, name);
}

/* ---- opening ---- */

/* Fills the table with functions of the library. Copies their addresses by
 * memcpy, because ISO C has no cast from a data pointer to a function. Returns
 * false if a function is missing; dlerror() names it. */
static bool provider_resolve(psptl_provider_t *provider, void *library)
{
    bool all = true;

#define PROVIDER_RESOLVE(function)                                             \
    do {                                                                       \
        void *found = dlsym(library, #function);                               \
        memcpy(&provider->function, &found, sizeof(found));                    \
    } while (0);
#define PROVIDER_RESOLVE_ALL(function)                                         \
    if (all) {                                                                 \
        PROVIDER_RESOLVE(function)                                             \
        all = provider->function;                                              \
    }
    PSPTL_EXTENSIONS(PROVIDER_RESOLVE)
    PSPTL_FUNCTIONS(PROVIDER_RESOLVE_ALL)
#undef PROVIDER_RESOLVE_ALL
#undef PROVIDER_RESOLVE
    return all;
}

static bool provider_open(psptl_provider_t *provider, const char *file,
                          char *reason)
{
    void *library = provider->library;

    if (library)
        return true;
    library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!library || !provider_resolve(provider, library)) {
        snprintf(reason, PSPTL_REASON_MAX, "%s", dlerror());
        if (library)
            dlclose(library);
        return false;
    }
    provider->library = library;
    return true;
}

/* Opens the machine's library of Portals 4. It is used only if the build found
 * its <portals4.h>, because the types in this header differ between
 * libraries. */
static bool provider_open_system(char *reason)
{
    if (!SOFTNI_SYSTEM_HEADER) {
        snprintf(reason, PSPTL_REASON_MAX,
                 "the build found no library of Portals 4 " PROVIDER_INSTEAD);
        return false;
    }
    if (provider_open(&providers.system, "libportals.so.4", reason))
        return true;
    snprintf(reason + strlen(reason), PSPTL_REASON_MAX - strlen(reason),
             " " PROVIDER_INSTEAD);
    return false;
}

static bool provider_open_software(char *reason)
{
    char path[PROVIDER_PATH_MAX];

    psptl_software_path(path, sizeof(path));
    return provider_open(&providers.software, path, reason);
}

static psptl_provider_t *provider_choose(psptl_choice_t choice, char *reason)
{
    if (choice != PSPTL_CHOICE_SOFTWARE && provider_open_system(reason))
        return &providers.system;
    if (choice != PSPTL_CHOICE_SYSTEM && provider_open_software(reason))
        return &providers.software;
    return NULL;
}

static psptl_provider_t *provider_locked(psptl_choice_t choice, char *reason)
{
    psptl_provider_t *provider;

    psc_lock_acquire(&providers.lock);
    provider = provider_choose(choice, reason);
    psc_lock_release(&providers.lock);
    return provider;
}

bool psptl_has_library(void)
{
    char reason[PSPTL_REASON_MAX];

    return provider_locked(PSPTL_CHOICE_SYSTEM, reason);
}

const psptl_provider_t *psptl_provider_start(psptl_choice_t choice,
                                             char *reason)
{
    psptl_provider_t *provider = provider_locked(choice, reason);

    if (!provider || provider->PtlInit() == PTL_OK)
        return provider;
    snprintf(reason, PSPTL_REASON_MAX,
             "the %s library does not start (PSP_PORTALS_PROVIDER)",
             provider->name);
    return NULL;
}
