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

#define IB_FRAME_MASK ((UINT64_C(1) << 55) - 1)
#define IB_FRAME_THERE (UINT64_C(1) << 63)
#define IB_FRAMES 512u /* numbers of page frames that one read returns */

/* Reads the entries of /proc/self/pagemap of n pages from page number `page`
 * on. */
static bool ib_proof_read(int proof, uintptr_t page, uint64_t *frames, size_t n)
{
    size_t want = n * sizeof(*frames);

    return PSC_RESTART(pread(proof, frames, want,
                             (off_t)(page * sizeof(*frames)))) == (ssize_t)want;
}

static bool ib_frame_known(uint64_t frame)
{
    return frame & IB_FRAME_THERE && (frame & IB_FRAME_MASK) != 0;
}

int ib_proof_open(void)
{
    int proof = PSC_RESTART(open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
    uint64_t frame = 0;

    if (proof < 0)
        return -1;
    if (psc_page_size() == IB_PAGE &&
        ib_proof_read(proof, (uintptr_t)&frame / IB_PAGE, &frame, 1) &&
        ib_frame_known(frame))
        return proof;
    close(proof);
    return -1;
}

bool ib_proof_take(int proof, const uint8_t *base, size_t len, uint64_t *frames)
{
    size_t n = len / IB_PAGE;

    if (!ib_proof_read(proof, (uintptr_t)base / IB_PAGE, frames, n))
        return false;
    for (size_t i = 0; i < n; i++) {
        if (!ib_frame_known(frames[i]))
            return false;
        frames[i] &= IB_FRAME_MASK;
    }
    return true;
}

bool ib_proof_holds(int proof, const uint8_t *base, size_t len,
                    const uint64_t *frames)
{
    uint64_t now[IB_FRAMES];
    uintptr_t page = (uintptr_t)base / IB_PAGE;

    for (size_t at = 0, n = len / IB_PAGE; at < n; at += IB_FRAMES) {
        size_t some = n - at < IB_FRAMES ? n - at : IB_FRAMES;

        if (!ib_proof_read(proof, page + at, now, some))
            return false;
        for (size_t i = 0; i < some; i++) {
            if (!(now[i] & IB_FRAME_THERE) ||
                (now[i] & IB_FRAME_MASK) != frames[at + i])
                return false;
        }
    }
    return true;
}
