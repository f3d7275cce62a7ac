/* Proof that memory is still mapped as it was when it was registered.
 *
 * A kept registration refers to pages, not to addresses; if the program unmaps
 * memory and maps the same address again, the pages are different. The pages of
 * a registration are pinned: the kernel neither moves nor reuses them. So if
 * the addresses still have the page frames that they had at the registration,
 * they refer to the registered memory, whatever was mapped in between. The
 * kernel shows page frames only to processes with CAP_SYS_ADMIN; in other
 * processes nothing can be proved, and no registration is kept. */
#include <fcntl.h>
#include <unistd.h>

#include "cache.h"
#include "pscompy/transport/kit/page.h"
#include "pscompy/transport/kit/restart.h"

#define IB_PFN_MASK ((UINT64_C(1) << 55) - 1)
#define IB_PFN_PRESENT (UINT64_C(1) << 63)
#define IB_PFNS 512u /* numbers of page frames that one read returns */

/* Reads the entries of /proc/self/pagemap of n pages from page number `page`
 * on. */
static bool ib_proof_read(int proof, uintptr_t page, uint64_t *pfns, size_t n)
{
    size_t want = n * sizeof(*pfns);

    return PSC_RESTART(pread(proof, pfns, want,
                             (off_t)(page * sizeof(*pfns)))) == (ssize_t)want;
}

static bool ib_pfn_known(uint64_t pfn)
{
    return pfn & IB_PFN_PRESENT && (pfn & IB_PFN_MASK) != 0;
}

int ib_proof_open(void)
{
    int proof = PSC_RESTART(open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
    uint64_t pfn = 0;

    if (proof < 0)
        return -1;
    if (psc_page_size() == IB_PAGE &&
        ib_proof_read(proof, (uintptr_t)&pfn / IB_PAGE, &pfn, 1) &&
        ib_pfn_known(pfn))
        return proof;
    close(proof);
    return -1;
}

bool ib_proof_take(int proof, const uint8_t *base, size_t len, uint64_t *pfns)
{
    size_t n = len / IB_PAGE;

    if (!ib_proof_read(proof, (uintptr_t)base / IB_PAGE, pfns, n))
        return false;
    for (size_t i = 0; i < n; i++) {
        if (!ib_pfn_known(pfns[i]))
            return false;
        pfns[i] &= IB_PFN_MASK;
    }
    return true;
}

bool ib_proof_holds(int proof, const uint8_t *base, size_t len,
                    const uint64_t *pfns)
{
    uint64_t now[IB_PFNS];
    uintptr_t page = (uintptr_t)base / IB_PAGE;

    for (size_t at = 0, n = len / IB_PAGE; at < n; at += IB_PFNS) {
        size_t some = n - at < IB_PFNS ? n - at : IB_PFNS;

        if (!ib_proof_read(proof, page + at, now, some))
            return false;
        for (size_t i = 0; i < some; i++) {
            if (!(now[i] & IB_PFN_PRESENT) ||
                (now[i] & IB_PFN_MASK) != pfns[at + i])
                return false;
        }
    }
    return true;
}
